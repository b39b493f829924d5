"""Provenance: what it takes to repeat a result, and nothing about who ran it or where."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import cutlayer

_PACKAGES = ("torch", "numpy", "safetensors", "pyarrow", "scikit-learn", "pydantic")


def provenance(seed: int, command: Sequence[str] | None = None) -> dict[str, Any]:
    """The provenance of a result, as plain JSON: commit, versions, hardware, seed and command.

    Host names, user names and directories are left out, so that it can be published.
    """
    return {
        "cutlayer": cutlayer.__version__,
        **_commit(),
        "command": _written(sys.argv if command is None else command),
        "seed": seed,
        "python": platform.python_version(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "kernels": _kernels(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "cores": _cores(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _written(command: Sequence[str]) -> str:
    """A command as one would type it: `python -m cutlayer`, whose first word names a file, too."""
    program, *words = command
    if Path(program).parts[-2:] == ("cutlayer", "__main__.py"):
        return " ".join(("python -m cutlayer", *map(_anonymous, words)))
    return " ".join(map(_anonymous, command))


def _commit() -> dict[str, Any]:
    """The commit, if the package is used from a checkout; `modified` if the files differ from it."""
    here = Path(cutlayer.__file__).parent
    commit = _git(here, "rev-parse", "HEAD")
    # A package that is installed into a folder of some other project's checkout is not that project.
    if commit is None or _git(here, "ls-files", "--error-unmatch", "__init__.py") is None:
        return {"commit": None, "modified": None}
    return {"commit": commit, "modified": bool(_git(here, "status", "--porcelain", "--", "."))}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _anonymous(word: str) -> str:
    """An argument without directories beyond this one: `--out=/home/me/runs/a` becomes `--out=a`."""
    return re.sub(
        r"(^|[=:,])((?:[/~\\]|\.\.[/\\])[^=:,]*)",
        lambda m: m[1] + re.split(r"[/\\]", m[2].rstrip("/\\"))[-1],
        word,
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _kernels() -> str:
    try:
        import cutlayer._native  # noqa: F401
    except ImportError:
        return "pytorch"
    return "native"


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1] if match else platform.processor()


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
