"""Scores and targets of other tasks than classification, as another party may send them."""

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cutlayer.codecs import codec
from cutlayer.config.schema import Config
from cutlayer.errors import AbsentError, MessageError
from cutlayer.protocol.boundary import Agreed, Boundary
from cutlayer.protocol.build import make_codecs
from cutlayer.tasks import Target, build
from cutlayer.wire.messages.base import Message
from cutlayer.wire.messages.scores import Scores, Sums
from cutlayer.wire.messages.types import Labels, Smashed

LANGUAGE = build("language", Target("integers", (8,), 13, sequence=True))
REGRESSION = build("regression", Target("floats"))


class Told:
    """A transport that has these messages, and notes who is at fault."""

    patient = True

    def __init__(self, *messages: Message) -> None:
        self.messages = list(messages)
        self.faults: list[str] = []

    def receive(self, client: int) -> Message:
        return self.messages.pop(0)

    def label(self, client: int) -> str:
        return f"client {client}"

    def fault(self, client: int, error: Exception) -> None:
        self.faults.append(str(error))


def boundary(configure: Callable[..., Config], task: Any, *messages: Message) -> tuple[Boundary, Told]:
    transport = Told(*messages)
    codecs = make_codecs(configure(), of_others=True)
    return Boundary(transport, codecs, Agreed(smashed=(2,)), task), transport


def test_sums_that_can_be_are_taken(configure: Callable[..., Config]) -> None:
    found, _ = boundary(configure, LANGUAGE, Sums(3, Sums.pack_values((20.5, 40.0)), 5))
    assert found.scores(0, 3, 5) == (20.5, 40.0)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (Sums(3, Sums.pack_values((20.5, 40.0)), 6), "sums of 6 samples, where 5 were asked"),
        (Sums(3, Sums.pack_values((20.5,)), 5), "8 bytes of sums; the 2 sums of this task take 16"),
        (Sums(3, b"x" * 17, 5), "17 bytes of sums"),
        (Sums(3, Sums.pack_values((math.nan, 40.0)), 5), "the sum 'loss' of a test batch is nan"),
        (Sums(3, Sums.pack_values((1.0, 41.0)), 5), "41 tokens"),
        (Scores(3, 5, 1.0, 2, 3), "expected a Sums"),
        (Sums(2, Sums.pack_values((20.5, 40.0)), 5), "of step 2"),
    ],
)
def test_sums_that_cannot_be_are_the_evaluator_s_fault(
    configure: Callable[..., Config], message: Message, said: str
) -> None:
    found, transport = boundary(configure, LANGUAGE, message)
    with pytest.raises(AbsentError, match=said):
        found.scores(0, 3, 5)
    assert len(transport.faults) == 1


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        (torch.tensor([1.0, 2.0, 3.0]), "elements"),
        (torch.tensor([[1.0, 2.0]]), r"shape \[1, 2\]"),
        (torch.tensor([1.0, 2e6]), "values of targets are up to 2e"),
        (torch.tensor([1.0, 2.0], dtype=torch.float64), "float64"),
    ],
)
def test_float_targets_are_bounded(
    configure: Callable[..., Config], targets: torch.Tensor, said: str
) -> None:
    dense = codec("dense")
    smashed, labels = Smashed(3, dense.encode(torch.ones(2, 2))), Labels(3, dense.encode(targets), 2)
    found, transport = boundary(configure, REGRESSION, smashed, labels)
    with pytest.raises(AbsentError, match=said):
        found.batch(0, 3, 2)
    assert len(transport.faults) == 1
    good = Labels(3, dense.encode(torch.tensor([1.0, -2.0])), 2)
    found, _ = boundary(configure, REGRESSION, smashed, good)
    assert found.batch(0, 3, 2)[1].tolist() == [1.0, -2.0]


def test_where_no_task_is_known_nothing_is_scored(configure: Callable[..., Config]) -> None:
    found = Boundary(SimpleNamespace(), make_codecs(configure()), Agreed())  # type: ignore[arg-type]
    with pytest.raises(MessageError, match="where none are expected"):
        found.scores(0, 0, 1)
