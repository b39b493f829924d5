"""Imports at run time: modules that only an extra installs, and a user's own code by its name."""

from __future__ import annotations

import importlib
import importlib.util
import operator
import re
import sys
from pathlib import Path
from typing import Any

from cutlayer.errors import CutlayerError, DataError

#: Packages whose modules have another name.
_PACKAGES = {"PIL": "pillow", "sklearn": "scikit-learn", "grpc": "grpcio", "google": "protobuf"}
#: Which extra installs a module.
_EXTRAS = {
    "torch": "train",
    "pydantic": "train",
    "PIL": "device",
    "cryptography": "network",
    "google": "network",
    "grpc": "network",
    "onnx": "export",
    "onnxruntime": "device",
}

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def need(module: str, why: str, extra: str = "train") -> Any:
    """Import a module of an extra at its first use, so that codecs alone stay light."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        root = module.split(".")[0]
        raise DataError(
            f"{why} needs {_PACKAGES.get(root, root)}, which is not installed ({error}); "
            f"install it with: pip install 'cutlayer[{extra}]'"
        ) from error


def missing(error: ModuleNotFoundError, why: str) -> CutlayerError | None:
    """What to say of a module that an extra installs; None if no extra does."""
    root = (error.name or "").split(".")[0]
    if root not in _EXTRAS:
        return None
    return DataError(
        f"{why} needs {_PACKAGES.get(root, root)}, which is not installed; "
        f"install it with: pip install 'cutlayer[{_EXTRAS[root]}]'"
    )


def _look_here(top: str) -> None:
    """Let modules of the current directory be found, behind all others, if one of them is meant."""
    here = Path.cwd()
    known = top in sys.modules or any(Path(entry or ".").absolute() == here for entry in sys.path)
    lies_here = (here / f"{top}.py").is_file() or (here / top).is_dir()
    if lies_here and not known and importlib.util.find_spec(top) is None:
        sys.path.append(str(here))


def is_import_name(text: str) -> bool:
    """Tell whether a text has the form `package.module:attribute`."""
    return _NAME.fullmatch(text) is not None


def import_by_name(name: str, kind: type[CutlayerError]) -> Any:
    """Import what `package.module:attribute` names; what goes wrong is raised as an error of that kind.

    Importing runs the user's code: whatever it raises is the cause of the error. A module that is not
    installed may lie in the current directory. Callers give only names that this process's user has given or
    allowed.
    """
    module_name, _, attribute = name.partition(":")
    if not is_import_name(name):
        raise kind(f"'{name}' is not of the form package.module:name.")
    _look_here(module_name.partition(".")[0])
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise kind(
            f"no module '{error.name}' to import '{name}' from. Run in its folder, install it, or put its "
            "folder on PYTHONPATH."
        ) from error
    except Exception as error:
        raise kind(f"importing '{module_name}' failed: {type(error).__name__}: {error}") from error
    try:
        return operator.attrgetter(attribute)(module)
    except AttributeError as error:
        public = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        raise kind(
            f"'{module_name}' has no '{attribute}'. It has: {', '.join(public) or 'no functions'}."
        ) from error
