"""Output on a terminal of 80 columns, and into a pipe."""

import io
import re
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout

import pytest

from cutlayer.commands import show
from cutlayer.commands.runs.compare import comparison
from cutlayer.commands.runs.recipes import recipes
from cutlayer.report.run_summary import Summary
from cutlayer.tasks.base import Metric


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")


def on(stream: io.StringIO, do: Callable[[], object]) -> str:
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


def test_runs_are_compared_in_two_tables_where_one_is_too_wide() -> None:
    metric = Metric("accuracy", percent=True)
    figures = {"up/smashed": 1_070_143, "down/gradients": 1_603_523, "up/sync": 643_756, "up": 1, "down": 1}
    run = Summary(
        run="ems-two-bits",
        codec="ms:ratio=0.99,bits=2,rounding=nearest",
        down_codec="ems:bpe=3.0",
        sync_codec="ems:bpe=2.0",
        rate="fixed",
        mode="parallel",
        clients=10,
        epochs=12,
        steps=50,
        metrics={"accuracy": 0.9861},
        metric=metric,
        best=0.9889,
        shown=(metric,),
        loss=0.1,
        error=0.0376,
        bytes=figures,
        raw_bytes={},
        simulated_seconds=None,
    )
    text = on(Terminal(), lambda: [show.console().print(table) for table in comparison([run])])
    assert max(map(len, text.splitlines())) <= 80
    assert all(word in text for word in (run.run, run.codec, run.down_codec, "98.61%", "1.07 MB")), text
    assert len(comparison([run])) == 1, "a file is wide enough for one"


def test_names_of_recipes_stay_in_one_piece() -> None:
    text = on(Terminal(), lambda: recipes("*"))
    assert max(map(len, text.splitlines())) <= 80
    assert " paper/resnet34-imagenet-shallow-none " in text, text
