"""Output on a terminal of 80 columns, and into a pipe."""

import io
import re
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout

import pytest

from cutlayer.commands import show


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")


def on(stream: io.StringIO, do: Callable[[], None]) -> str:
    with redirect_stdout(stream), redirect_stderr(stream):
        do()
    return re.sub(r"\x1b\[\d*m", "", stream.getvalue())


def test_a_table_too_wide_for_the_terminal_loses_no_number() -> None:
    columns = ["codec", *(f"seconds of part {n}" for n in range(8))]
    name = "ms:ratio=0.99,bits=2,rounding=nearest"
    rows = [["dense", *"12345678"], [name, *(f"{n}.25 s" for n in range(8))]]
    text = on(Terminal(), lambda: show.console().print(show.table(None, columns, rows)))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert all(any(f" {n}.25 s" in line for line in lines) for n in range(8)), text
    written = "".join(line.split()[0] for line in lines if line.strip())
    assert written.endswith(name), text


def test_messages_break_between_words_on_a_terminal_and_not_in_a_pipe() -> None:
    text = "[bold] word:smile: " * 20 + "end"
    shown = on(Terminal(), lambda: show.say(text))
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert shown.split() == text.split()
    assert on(io.StringIO(), lambda: show.say(text, stderr=True)) == f"{text}\n"
