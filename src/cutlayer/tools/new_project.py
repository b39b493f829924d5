"""Make a folder to begin from: a commented configuration, a model, data, and what to do next."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from cutlayer.errors import FileError
from cutlayer.files import write_atomically

FILES = ("my.toml", "my_model.py", "my_data.py", "README.md")


def new_project(folder: Path) -> list[Path]:
    """Write the files. None that is there already is replaced."""
    there = [folder / name for name in FILES if (folder / name).exists()]
    if there:
        raise FileError(f"{there[0]} exists; choose another folder, or move the file away")
    written = []
    for name in FILES:
        text = files("cutlayer.tools").joinpath("project", name).read_text(encoding="utf-8")
        write_atomically(folder / name, text, parents=True)
        written.append(folder / name)
    return written
