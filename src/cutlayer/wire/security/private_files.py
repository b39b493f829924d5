"""Keys and tokens as files that only their owner may read, and certificates that all may."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cutlayer.errors import CredentialError, FileError
from cutlayer.files import write_atomically

SECRET = 0o600
PUBLIC = 0o644


def write_all(files: Mapping[Path, tuple[bytes, int]], *, force: bool) -> None:
    """Write files with their modes. If one is in the way and `force` is not given, none is written."""
    for path in files:
        if path.exists() and not force:
            raise FileError(f"{path}: is there already; choose another --dir, or replace it with --force")
    for path, (content, mode) in files.items():
        write_atomically(path, content, mode=mode, parents=True)


def read(path: Path, what: str) -> bytes:
    """The bytes of a file of that kind."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise CredentialError(f"{path}: the {what} cannot be read ({error.strerror})") from error
