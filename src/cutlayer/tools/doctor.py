"""Check an installation: versions, kernels, threads, extras, ports; and what to do about each."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import cutlayer
from cutlayer.codecs.kernels import instruction_set
from cutlayer.errors import CutlayerError

Verdict = Literal["ok", "note", "problem"]

#: What each extra needs, by the name under which it is imported.
EXTRAS: dict[str, tuple[str, ...]] = {
    "train": ("pydantic", "pyarrow", "PIL", "sklearn", "matplotlib", "tensorboard", "tomli_w"),
    "network": ("grpc", "google.protobuf", "grpc_health", "cryptography", "prometheus_client"),
    "device": ("onnxruntime", "grpc", "google.protobuf", "cryptography", "PIL"),
    "export": ("onnx", "onnxruntime", "onnxscript"),
    "dashboard": ("starlette", "uvicorn"),
    "lightning": ("lightning",),
    "zarr": ("zarr", "numcodecs"),
    "trackio": ("trackio",),
    "hub": ("huggingface_hub",),
    "flower": ("flwr",),
}
_PORTS = {50551: "cutlayer serve", 8080: "cutlayer dashboard"}
_LEAST_DISK = 1 << 30


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    found: str
    verdict: Verdict = "ok"
    advice: str = ""

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)


def examine(folder: Path = Path()) -> list[Finding]:
    """Everything that was found, in the order of importance. Nothing is changed."""
    looks: tuple[Callable[[], Iterator[Finding]], ...] = (_versions, _kernels, _threads, _extras, _ports)
    return [*(finding for look in looks for finding in look()), *_disk(folder)]


def _versions() -> Iterator[Finding]:
    yield Finding("cutlayer", cutlayer.__version__)
    yield Finding("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    for name in ("numpy", "torch"):
        found = _version(name)
        if found is None and name == "torch":
            advice = "codecs and devices do without; to train: pip install 'cutlayer[train]'"
            yield Finding(name, "not installed", "note", advice)
        elif found is None:
            yield Finding(name, "not installed", "problem", f"pip install {name}")
        else:
            yield Finding(name, found)


def _kernels() -> Iterator[Finding]:
    try:
        from cutlayer import _native  # noqa: F401
    except ImportError:
        advice = (
            "codecs work, but slowly: install a C++17 compiler, then pip install --force-reinstall cutlayer"
        )
        if _version("torch") is None:
            advice = "without PyTorch codecs need them: install a wheel, or pip install 'cutlayer[train]'"
        yield Finding("kernels", "not compiled", "problem", advice)
        return
    yield Finding("kernels", "compiled")
    try:
        used = instruction_set.choose()
    except CutlayerError as error:
        yield Finding("instruction set", f"not {os.environ[instruction_set.VARIABLE]}", "problem", str(error))
        return
    slow = used == "generic"
    advice = "this processor has no vector instructions that the kernels know" if slow else ""
    yield Finding("instruction set", used, "note" if slow else "ok", advice)


def _threads() -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS")
    if asked is None:
        yield Finding("threads", f"{cores} cores; `train` chooses by the model, --threads decides")
    elif not asked.isdecimal() or int(asked) > cores:
        yield Finding(
            "threads",
            f"{cores} cores, OMP_NUM_THREADS={asked}",
            "problem",
            f"more threads than cores only wait: unset OMP_NUM_THREADS, or set it to at most {cores}",
        )
    else:
        yield Finding("threads", f"{cores} cores, OMP_NUM_THREADS={asked}")


def _extras() -> Iterator[Finding]:
    for extra, modules in EXTRAS.items():
        missing = [module for module in modules if not _there(module)]
        if not missing:
            yield Finding(f"extra {extra}", "installed")
            continue
        # What every run needs is a problem where PyTorch is; devices do without, and others need not be.
        runs = extra in ("train", "network") and _version("torch") is not None
        needed: Verdict = "problem" if runs else "note"
        told = "not installed" if len(missing) == len(modules) else f"without {', '.join(missing)}"
        yield Finding(f"extra {extra}", told, needed, f"pip install 'cutlayer[{extra}]'")


def _ports() -> Iterator[Finding]:
    for port, command in _PORTS.items():
        with socket.socket() as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                attempt.bind(("127.0.0.1", port))
            except OSError as error:
                advice = f"another program has it: give {command} another port with --listen"
                yield Finding(f"port {port}", f"taken ({error.strerror})", "note", advice)
                continue
        yield Finding(f"port {port}", f"free for {command}")


def _disk(folder: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(folder.resolve()).free
    low = free < _LEAST_DISK
    advice = "checkpoints of large models need more: make room, or give --out on another disk" if low else ""
    yield Finding("free disk here", f"{free / 1e9:.1f} GB", "problem" if low else "ok", advice)


def _there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it is missing
        return False


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
