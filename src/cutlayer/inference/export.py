"""A trained model, or one side of it, as a plain state dict that any PyTorch program loads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import safetensors.torch
from torch import Tensor

from cutlayer.errors import FileError
from cutlayer.files import reason, write_atomically
from cutlayer.inference.client_half import about_half
from cutlayer.protocol.state_bytes import unshared
from cutlayer.training.load_run import Trained

Side = Literal["whole", "client", "server"]


def state_dict(trained: Trained, part: Side = "whole") -> dict[str, Tensor]:
    """The tensors of the whole model or one side, under the whole model's names.

    In a U-shape the client's side is head and tail.
    """
    if part == "whole":
        return dict(trained.model.state_dict())
    head, body, *tail = trained.parts
    chosen = [body] if part == "server" else [head, *tail]
    return {name: tensor for half in chosen for name, tensor in half.state_dict().items()}


def export(trained: Trained, path: str | Path, part: Side = "whole") -> dict[str, Tensor]:
    """Write the tensors to a safetensors file, whose metadata say what they are.

    Equal runs give equal files, byte for byte.
    """
    path = Path(path)
    if path.suffix != ".safetensors":
        raise FileError(f"{path}: an exported model is a .safetensors file; give it that name")
    tensors = state_dict(trained, part)
    config = trained.config
    about = {
        "part": part,
        "model": config.model.model_dump(),
        "codec": config.codec.up,
        "step": trained.step,
        "classes": trained.data_spec.classes,
        "class_names": trained.data_spec.class_names,
        "shape": trained.data_spec.shape,
        "mean": trained.data_spec.mean,
        "std": trained.data_spec.std,
        **about_half(trained),
    }
    content = canonical_file(tensors, {"cutlayer": json.dumps(about, sort_keys=True), "format": "pt"})
    try:
        write_atomically(path, content, parents=True)
    except OSError as error:
        raise FileError(f"{path}: cannot be written ({reason(error)})") from error
    return tensors


def canonical_file(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """A safetensors file with sorted metadata. The library writes them in an order that it draws anew."""
    data = safetensors.torch.save(unshared(tensors), dict(metadata))
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end]) | {"__metadata__": dict(sorted(metadata.items()))}
    text = json.dumps(dict(sorted(header.items())), separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[end:]
