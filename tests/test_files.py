"""Files are whole or absent, whatever happens meanwhile; a log has one writer at a time."""

import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cutlayer.errors import DataError, FileError
from cutlayer.files import atomic_path, locked_log, remove_partial_files, write_atomically


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("content", ["zwölf\n", b"\x00\xff"])
def test_text_and_bytes_replace_what_was_there(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "a" / "file"
    write_atomically(path, "old", parents=True)
    write_atomically(path, content)
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert names(path.parent) == ["file"]


def write_half(path: Path, error: BaseException) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text("half")
        raise error


@pytest.mark.parametrize(
    "error", [DataError("of another kind"), KeyboardInterrupt(), OSError(errno.ENOSPC, "x")]
)
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")
    kind = FileError if isinstance(error, OSError) else type(error)
    with pytest.raises(kind) as told:
        write_half(path, error)
    if kind is FileError:
        assert str(told.value) == f"{path}: cannot be written (the disk is full)"
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_both_the_file_and_its_name_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append(stat.S_ISDIR(os.fstat(handle).st_mode)))
    write_atomically(tmp_path / "file", "x")
    assert flushed == [False, True]


def test_a_private_file_is_private_from_its_first_byte(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "key", mode=0o600) as temporary:
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
    before = os.umask(0o077)
    try:
        write_atomically(tmp_path / "public", "x", mode=0o644)
        write_atomically(tmp_path / "usual", "x")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("key", "public", "usual")]
    assert modes == [0o600, 0o644, 0o600]


def test_a_missing_folder_and_a_file_in_the_way_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"file: cannot be written \(No such file or directory\)"):
        write_atomically(tmp_path / "no" / "file", "x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileError, match="folder: cannot be written"):
        write_atomically(tmp_path / "folder", "x")
    assert names(tmp_path) == ["folder"]


WRITER = """
import sys, time
from cutlayer.files import atomic_path, locked_log
with locked_log(sys.argv[1] + "/log", "busy") as log, atomic_path(sys.argv[1] + "/file") as temporary:
    temporary.write_text("half")
    print("ready", flush=True)
    time.sleep(600)
"""


def test_a_kill_lifts_the_lock_and_what_it_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "mine.partial").touch()
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(FileError, match="busy"), locked_log(tmp_path / "log", "busy"):
            pass
        process.send_signal(signal.SIGKILL)
    assert len(names(tmp_path)) == 4
    with locked_log(tmp_path / "log", "busy") as log:
        log.write(b"line\n")
        assert names(tmp_path) == ["log", "log.lock", "mine.partial"]


def test_temporary_files_of_older_versions_are_removed(tmp_path: Path) -> None:
    (tmp_path / "step-000000007.safetensors.123.partial").touch()
    remove_partial_files(tmp_path)
    assert names(tmp_path) == []
