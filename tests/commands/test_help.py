"""Help: nothing heavy is imported for it, and it is readable on a terminal of 80 columns."""

import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise

import pytest
import typer.main
from typer.testing import CliRunner

from cutlayer import cli
from cutlayer.cli import app

# Typer itself may import pydantic; our settings would come with it.
HEAVY = ("torch", "grpc", "numpy", "matplotlib", "sklearn", "cryptography", "cutlayer.config.schema")

PROGRAM = f"""
import sys
from typer.testing import CliRunner

from cutlayer.cli import app
for line in sys.stdin.read().splitlines():
    try:
        app(line.split(), prog_name="cutlayer")
    except SystemExit as ended:
        assert ended.code == 0, (line, ended.code)
    loaded = set({HEAVY}) & set(sys.modules)
    assert not loaded, (line, loaded)
"""


def commands(command: typer.main.TyperGroup, words: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """All commands, as words and help text."""
    yield " ".join(words), command.help or ""
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*words, name))


COMMANDS = dict(commands(typer.main.get_command(app)))


def test_help_and_version_import_nothing_heavy() -> None:
    lines = ["--version", *(f"{words} --help" for words in COMMANDS)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input="\n".join(lines), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage: cutlayer") == len(COMMANDS)


def test_a_command_is_there_without_the_modules_of_the_others() -> None:
    assert [words for words in COMMANDS if words and " " not in words] == list(cli.COMMANDS)
    for name, module in cli.COMMANDS.items():
        alone = [words for words, _ in commands(typer.main.get_command(cli.program(name)))]
        beside = {other for other, where in cli.COMMANDS.items() if where == module}
        assert {words.split()[0] for words in alone if words} == beside


@pytest.mark.parametrize("words", COMMANDS)
def test_help_is_shown_as_it_is_written(words: str) -> None:
    shown = CliRunner().invoke(app, [*words.split(), "--help"], terminal_width=80).stdout
    lines = [line.rstrip() for line in shown.splitlines()]
    assert max(map(len, lines)) <= 80
    assert "<bool>" not in shown, "a flag takes nothing"
    assert "list[" not in shown, "that is a name of Python's; give the option a metavar"
    types = [line for line in lines if line.startswith("│") and re.search(r"<[\w|-]+\s", line)]
    assert not types, f"a list of choices is broken in two; give the option a metavar: {types}"
    assert "\b" not in shown
    assert "......" not in shown.replace("…", "...")
    assert not any(a == b == "" for a, b in pairwise(lines[2:-2])), "one blank line is enough"
    for line in COMMANDS[words].splitlines():
        assert f" {line}".rstrip() in lines, line


@pytest.mark.parametrize("words", COMMANDS)
def test_help_fits_80_columns_and_has_an_example(words: str) -> None:
    text = COMMANDS[words]
    assert max(map(len, text.splitlines())) <= 78, "its frame takes two columns"
    group = words in ("", "certs", "reproduce")
    assert group or f"cutlayer {words}" in text
    first = text.splitlines()[0]
    assert first.endswith(".")
    assert len(text.splitlines()) == 1 or text.splitlines()[1] == "", "the first line is the list's"
