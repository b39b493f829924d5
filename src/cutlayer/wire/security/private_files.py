"""Files that only their owner may read, whole or absent."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from cutlayer.errors import FileError

SECRET = 0o600
PUBLIC = 0o644


def write_all(files: Mapping[Path, tuple[bytes, int]], *, force: bool) -> None:
    """Write files with their modes. If one is in the way and `force` is not given, none is written."""
    for path in files:
        if path.exists() and not force:
            raise FileError(f"{path}: is there already; choose another --dir, or replace it with --force")
    for path, (content, mode) in files.items():
        write(path, content, mode)


def write(path: Path, content: bytes, mode: int) -> None:
    """Write one file. It never exists with more rights than `mode` gives, nor half written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # made as 0600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(temporary).chmod(mode)
            Path(temporary).replace(path)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError as error:
        raise FileError(f"{path}: cannot be written ({error.strerror})") from error
