"""Questions to a person at a terminal."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from cutlayer.errors import FileError


def may_replace(path: Path) -> None:
    """Ask before a file is replaced. Where nobody can answer, it is an error."""
    if not path.exists():
        return
    answered = sys.stdin.isatty() and typer.confirm(f"{path} exists; replace it?", err=True)
    if not answered:
        raise FileError(f"{path} exists; choose another name with --out, or replace it with --force")
