import time
from pathlib import Path

import pytest

from cutlayer.training.tensorboard import TensorBoard, numbers

pytest.importorskip("tensorboard")


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_numbers_become_curves_by_kind(tmp_path):
    log = TensorBoard(tmp_path)
    log.step({"global_step": 1, "loss": 0.5, "bytes": {"up": 8}, "name": "x", "error": None, "last": True})
    log.step({"global_step": 2, "loss": 0.25})
    log.epoch({"global_step": 2, "accuracy": 0.75})
    log.close()
    assert curves(tmp_path) == {
        "step/loss": [(1, 0.5), (2, 0.25)],
        "step/bytes/up": [(1, 8.0)],
        "epoch/accuracy": [(2, 0.75)],
    }


def test_a_resumed_run_hides_what_it_repeats(tmp_path):
    first = TensorBoard(tmp_path)
    for step in (1, 2, 3):
        first.step({"global_step": step, "loss": float(step)})
    first.close()
    time.sleep(1.05)  # TensorBoard orders the files of a run by the second in which they were begun
    resumed = TensorBoard(tmp_path, resumed_at=1)
    resumed.step({"global_step": 2, "loss": 20.0})
    resumed.close()
    assert curves(tmp_path) == {"step/loss": [(1, 1.0), (2, 20.0)]}


def test_only_numbers_are_taken():
    assert numbers({"a": {"b": 1, "c": "x"}, "d": None}, "p") == [("p/a/b", 1.0)]
