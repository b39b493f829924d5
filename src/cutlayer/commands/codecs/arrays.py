"""Tensors in files: .npy and .safetensors, read and written so that nothing is half done.

PyTorch is used for .safetensors files where it is installed, since NumPy has no bfloat16.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from cutlayer.codecs.decode import torch_installed
from cutlayer.errors import FileError
from cutlayer.files import atomic_path

KINDS = (".npy", ".safetensors")


def read_tensor(path: Path, name: str | None = None) -> Any:
    """The tensor in a file. A .safetensors file with several needs the name of one."""
    _exists(path)
    kind = _kind(path)
    try:
        if kind == ".npy":
            if name:
                raise FileError(f"{path}: a .npy file holds one array without a name; drop --tensor")
            array = np.load(path, allow_pickle=False)
            return array if array.dtype.kind in "fiub" else _refuse(path, array.dtype)
        tensors = _load(path)
    except FileError:
        raise
    except Exception as error:
        raise FileError(f"{path}: not a readable {kind} file: {error}") from None
    if name is None and len(tensors) == 1:
        return next(iter(tensors.values()))
    if name not in tensors:
        listed = ", ".join(sorted(tensors)[:20])
        asked = f"no tensor {name!r}" if name else "several tensors"
        raise FileError(f"{path} holds {asked}; choose one with --tensor: {listed}")
    return tensors[name]


def read_tensors(path: Path) -> dict[str, Any]:
    """All tensors of a .safetensors file, by name."""
    _exists(path)
    if _kind(path) != ".safetensors":
        raise FileError(f"{path}: several tensors with names are in a .safetensors file")
    try:
        found = _load(path)
    except Exception as error:
        raise FileError(f"{path}: not a readable .safetensors file: {error}") from None
    return found


def write_tensor(path: Path, x: Any, *, force: bool) -> None:
    """Write a tensor, as what the file's ending says."""
    kind = _kind(path)
    if kind == ".npy":
        if str(x.dtype) == "torch.bfloat16":
            raise FileError("NumPy has no bfloat16; write to a .safetensors file instead")
        write_safely(path, lambda temporary: _save_npy(temporary, x), force=force)
    elif isinstance(x, np.ndarray):
        from safetensors.numpy import save_file as save_array

        write_safely(path, lambda temporary: save_array({"tensor": x}, temporary), force=force)
    else:
        from safetensors.torch import save_file

        write_safely(path, lambda temporary: save_file({"tensor": x.contiguous()}, temporary), force=force)


def _load(path: Path) -> dict[str, Any]:
    kind = "torch" if torch_installed() else "numpy"
    return dict(import_module(f"safetensors.{kind}").load_file(path))


def read_bytes(path: Path) -> bytes:
    """All bytes of a file."""
    _exists(path)
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}") from None


def write_safely(path: Path, write: Callable[[Path], object], *, force: bool) -> None:
    """Let `write` fill a temporary file, then move it into place: the file is there whole, or not at all."""
    if path.exists() and not force:
        raise FileError(f"{path} exists; choose another name or pass --force")
    with atomic_path(path) as temporary:
        write(temporary)


def _save_npy(path: Path, x: Any) -> None:
    with path.open("wb") as file:
        np.save(file, x if isinstance(x, np.ndarray) else x.numpy(), allow_pickle=False)


def _exists(path: Path) -> None:
    if not path.is_file():
        raise FileError(f"{path}: no such file")


def _kind(path: Path) -> str:
    if path.suffix not in KINDS:
        raise FileError(f"{path}: expected a file that ends in {' or '.join(KINDS)}")
    return path.suffix


def _refuse(path: Path, dtype: np.dtype[np.generic]) -> None:
    raise FileError(f"{path}: holds {dtype}, expected numbers")
