"""Files that only one process at a time may write."""

from typing import IO

from cutlayer.errors import FileError

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]


def lock(file: IO[bytes], told: str) -> None:
    """Keep a file for this process, or raise FileError with `told`. A kill lifts the lock."""
    if fcntl is None:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise FileError(told) from error
