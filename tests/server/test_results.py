"""Evaluations in checkpoints: of any task, and of releases that knew classification only."""

import dataclasses

from cutlayer.server.results import EpochSums, Evaluation
from cutlayer.tasks.classification import Classification
from cutlayer.tasks.metric import LOSS, Metric


def test_an_evaluation_goes_through_a_checkpoint() -> None:
    scored = Evaluation(10, 0.5, {"mse": 0.25}, {"up": 7}, 1.5)
    assert Evaluation.parse(dataclasses.asdict(scored)) == scored


def test_one_of_an_earlier_release_is_read() -> None:
    old = {"samples": 10, "loss": 0.5, "top1": 0.9, "top5": 1.0, "bytes": {"up": 7}, "seconds": 1.5}
    found = Evaluation.parse(old)
    assert found == Evaluation(10, 0.5, {"accuracy": 0.9, "accuracy_top5": 1.0}, {"up": 7}, 1.5)
    assert found.value(Classification.metrics[0]) == 0.9
    assert found.value(Metric(LOSS, higher=False)) == 0.5


def test_records_of_classification_have_the_keys_that_they_had() -> None:
    scored = Evaluation(10, 0.5, {"accuracy": 0.9, "accuracy_top5": 1.0})
    record = EpochSums().record(0, 5, scored, Classification.metrics)
    assert (record["test_loss"], record["accuracy"], record["accuracy_top5"]) == (0.5, 0.9, 1.0)
    assert list(record) == [
        "global_step", "epoch", "lr", "train_loss", "error", "test_loss", "accuracy", "accuracy_top5",
        "bytes", "raw_bytes", "evaluation_bytes", "seconds",
    ]  # fmt: skip
    assert EpochSums().record(0, 5, None, Classification.metrics)["accuracy"] is None
