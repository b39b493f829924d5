"""Import what only an extra (`train`, `network`) installs, with an error that says so."""

from __future__ import annotations

import importlib
from typing import Any

from cutlayer.errors import DataError


def need(module: str, why: str, extra: str = "train") -> Any:
    """Import a module of an extra at its first use, so that codecs alone stay light."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = {"PIL": "pillow", "sklearn": "scikit-learn", "grpc": "grpcio"}.get(
            module.split(".")[0], module.split(".")[0]
        )
        raise DataError(
            f"{why} needs {package}, which is not installed ({error}); "
            f"install it with: pip install 'cutlayer[{extra}]'"
        ) from error
