import io
import json
import math

import pytest

from cutlayer.tasks import Metric
from cutlayer.training import progress
from cutlayer.training.progress_bar import LogLines, ProgressBar, progress_bar
from cutlayer.training.status.run_metrics import RunMetrics
from cutlayer.units import count, duration, size


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def step(number, loss=0.5):
    sent = {"up": 110, "up/smashed": 100, "down": 50}
    return {"global_step": number, "loss": loss, "bytes": sent, "raw_bytes": {"up/smashed": 1000}}


def play(shown):
    shown.begin(epochs=2, steps=4, done=0)
    for number in (1, 2):
        shown.step(step(number))
    shown.epoch({"global_step": 2, "accuracy": 0.9})
    shown.note("be careful")
    for number in (3, 4):
        shown.step(step(number))
    shown.epoch({"global_step": 4, "accuracy": 0.95})
    shown.close()


def test_a_pipe_gets_plain_lines():
    stream = io.StringIO()
    play(progress.display(stream=stream))
    lines = stream.getvalue().splitlines()
    assert "\x1b" not in stream.getvalue()
    assert lines[1] == "be careful"
    for word in (
        "epoch 2/2",
        "step 4",
        "loss 0.5000",
        "accuracy 95.00%",
        "up 440 B",
        "down 200 B",
        "10.0x",
        "ETA",
    ):
        assert word in lines[2]


def test_a_terminal_gets_a_live_display_that_ends_clean():
    stream = Terminal()
    play(progress.display(stream=stream))
    shown = stream.getvalue()
    assert "accuracy 95.00%" in shown
    assert "be careful" in shown
    assert shown.endswith("\x1b[?25h")  # the cursor is visible again


def test_a_display_that_never_began_can_be_closed():
    for mode in ("auto", "quiet", "json"):
        progress.display(mode, Terminal()).close()


def test_quiet_shows_only_notes(capsys):
    play(progress.display("quiet"))
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "be careful\n"


def test_json_prints_the_records(capsys):
    play(progress.display("json"))
    out, err = capsys.readouterr()
    records = [json.loads(line) for line in out.splitlines()]
    assert [r["kind"] for r in records] == ["step", "step", "epoch", "step", "step", "epoch"]
    assert err == "be careful\n"


def test_long_epochs_get_lines_in_between():
    stream = io.StringIO()
    lines = progress.BarDisplay(LogLines(stream, every=0))
    lines.begin(1, 100, 50)
    lines.step(step(51))
    assert "epoch 1/1  step 51" in stream.getvalue()


def test_metrics_before_and_after_the_first_step():
    metrics = RunMetrics(3, 30, 10)
    assert metrics.place() == "epoch 1/3"
    metrics.step(step(11, loss=None))
    assert metrics.place() == "epoch 2/3"
    assert "loss nan" in metrics.summary()


def test_the_time_left_counts_from_where_the_work_was_resumed(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    bar = ProgressBar()
    bar.begin(30, 10)
    assert math.isnan(bar.remaining())
    clock[0] += 8
    bar.update(14)
    assert bar.remaining() == 32


def test_a_label_with_brackets_is_no_markup():
    stream = Terminal()
    bar = progress_bar(stream)
    bar.begin(2)
    bar.update(1, "[red]name", "[bold]more")
    bar.line("[3 of 4]")
    bar.close()
    for text in ("[red]name", "[bold]more", "[3 of 4]"):
        assert text in stream.getvalue()


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (size, 0, "0 B"),
        (size, 999, "999 B"),
        (size, 12_345, "12.3 kB"),
        (size, 999_999, "1 MB"),
        (size, 5e15, "5000 TB"),
        (count, 11_173_962, "11.2 M"),
        (count, 5, "5"),
        (count, 3.6e9, "3.6 G"),
        (duration, 4.5, "4.5 s"),
        (duration, 123, "2:03"),
        (duration, 3723, "1:02:03"),
        (duration, math.nan, "?"),
    ],
)
def test_units(function, value, text):
    assert function(value) == text


def test_metrics_of_any_task_are_shown_by_name() -> None:
    metrics = (Metric("mean_iou", percent=True), Metric("mse", higher=False), Metric("more", minor=True))
    shown = RunMetrics(2, 4, 0, metrics)
    assert "iou" not in shown.summary()
    shown.epoch({"global_step": 2, "mean_iou": 0.5, "mse": 0.012345, "more": 1.0})
    assert "mean iou 50.00%  mse 0.01235" in shown.summary()
    assert "more" not in shown.summary()
