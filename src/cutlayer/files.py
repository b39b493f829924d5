"""Small files of a run, whole or not at all: a run that is killed meanwhile must still find its settings."""

from pathlib import Path

from cutlayer.errors import FileError


def write_whole(path: Path, text: str) -> None:
    """Write a text file. What was there stays until the new one is complete."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise FileError(
            f"{path}: cannot be written ({error.strerror}); make room, or give another --out"
        ) from error
