"""How a run stands, as its checkpoints keep it."""

import json
import math

import pytest

from cutlayer.server.results import Evaluation
from cutlayer.tasks import Metric
from cutlayer.training.result import Standing


def evaluation(accuracy: float) -> Evaluation:
    return Evaluation(10, 1.0, {"accuracy": accuracy})


def test_the_best_evaluation_is_kept_beside_the_last() -> None:
    standing = Standing(Metric("accuracy"))
    for number, accuracy in ((5, math.nan), (10, 0.5), (15, 0.7), (20, 0.6)):
        standing.evaluated(evaluation(accuracy), number)
    assert (standing.best, standing.best_step) == (0.7, 15)
    assert standing.scored == evaluation(0.6)


@pytest.mark.parametrize("accuracies", [[], [0.7, 0.6]], ids=["nothing", "two evaluations"])
def test_a_checkpoint_brings_it_back(accuracies: list[float]) -> None:
    standing, other = Standing(Metric("accuracy")), Standing(Metric("accuracy"))
    for number, accuracy in enumerate(accuracies, 1):
        standing.evaluated(evaluation(accuracy), number)
    state = json.loads(json.dumps(standing.state()))
    other.restore(state)
    assert json.loads(json.dumps(other.state())) == state
    assert other.best_step == standing.best_step
    assert math.isnan(other.best) if not accuracies else other.best == 0.7
