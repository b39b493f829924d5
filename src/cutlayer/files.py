"""Atomic file writes, and locks.

A file that is written here is complete under its name, or not there at all. Its content goes to a temporary
folder beside it, is flushed to the disk (fsync), and is then renamed. A process that is killed, or a disk
that is full, leaves what was there before. Temporary folders end in `.partial`; those of killed processes are
removed by `remove_partial_files`, with whatever a library has left in them: safetensors makes a temporary
file of its own beside the one that it is to write.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from filelock import FileLock, Timeout

from cutlayer.errors import CutlayerError, FileError

# The name of a temporary folder: its target's name, a process, a random number.
_PARTIAL = re.compile(r".+\.\d+(-[0-9a-f]{8})?\.partial")


@contextmanager
def atomic_path(path: str | Path, *, mode: int | None = None, parents: bool = False) -> Iterator[Path]:
    """Give a temporary path to write to, and rename it to `path` when the block ends without an error.

    `mode` are the permissions of the file, which never exists with more than these; without it, the usual
    ones. `parents` creates missing folders.

    >>> with atomic_path("weights.safetensors") as temporary:
    ...     save_file(tensors, temporary)
    """
    target = Path(path)
    folder = target.with_name(f"{target.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    temporary = folder / target.name
    try:
        if parents:
            target.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(0o777 if mode is None else 0o700)
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if mode is None else mode))
        yield temporary
        if mode is not None:
            # What the umask took away.
            temporary.chmod(mode)
        _sync(temporary)
        temporary.replace(target)
        _sync(target.parent)
    except CutlayerError:
        raise
    except OSError as error:
        raise FileError(f"{target}: cannot be written ({reason(error)})") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_atomically(
    path: str | Path, content: str | bytes, *, mode: int | None = None, parents: bool = False
) -> None:
    """Write text (as UTF-8) or bytes. See `atomic_path`."""
    with atomic_path(path, mode=mode, parents=parents) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def remove_partial_files(folder: str | Path) -> None:
    """Remove what killed processes left in a folder. Only the process that has locked it may call this."""
    for path in Path(folder).glob("*.partial"):
        if _PARTIAL.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)
            with suppress(OSError):  # a file, of an older version
                path.unlink(missing_ok=True)


@contextmanager
def locked_log(path: str | Path, held: str) -> Iterator[FileIO]:
    """Open a file for appending, without a buffer, and keep all other processes out of it and its folder.

    Raise FileError with the text `held` if another process has it. The lock is the operating system's, on a
    file `<path>.lock` that stays behind: a kill lifts it. With the lock in hand, temporary files that killed
    processes left in the folder are removed.
    """
    target = Path(path)
    # Any thread may release it.
    lock = FileLock(f"{target}.lock", thread_local=False)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(blocking=False)
        try:
            file = target.open("a+b", buffering=0)
        except OSError:
            lock.release()
            raise
    except Timeout as error:
        raise FileError(held) from error
    except OSError as error:
        raise FileError(f"{target}: cannot be written there ({reason(error)})") from error
    try:
        with file:
            remove_partial_files(target.parent)
            yield file
    finally:
        lock.release()


def reason(error: Exception) -> str:
    """Why a file could not be read or written, in a few words."""
    # Libraries in other languages, such as safetensors, raise errors of their own with the system's text.
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error)
    return "the disk is full" if full else str(getattr(error, "strerror", None) or error)


def _sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
