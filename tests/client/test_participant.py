"""What a server offers and sends takes no memory that it should not, and runs no code that it should not."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from cutlayer.client.participant import Participant
from cutlayer.codecs.tensor_set.integers import encode_integers
from cutlayer.config.schema import Config
from cutlayer.errors import LimitError, RefusedError, TaskError
from cutlayer.protocol.handshake import digest, settings_for_clients
from cutlayer.tasks import Target
from cutlayer.tasks.own_loss import OwnLoss
from cutlayer.wire.messages.base import Message
from cutlayer.wire.messages.protobuf import message_class
from cutlayer.wire.messages.types import BeginStep, Evaluate, Gradient, Share, Smashed, SyncDown

OWN = """
from torch.nn import functional as F
from cutlayer.tasks import Integers, Task

class Focal(Task):
    def __init__(self, classes, gamma=2.0):
        self.targets, self.gamma = Integers(classes), gamma

    def loss(self, outputs, targets):
        loss = F.cross_entropy(outputs, targets, reduction="none")
        return ((1 - (-loss).exp()) ** self.gamma * loss).mean()
"""


@pytest.fixture
def offer(configure: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "focal_tasks.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    settings = settings_for_clients(configure("task.name=focal_tasks:Focal", "task.gamma=1.0"))
    return message_class("Offer")(client=0, clients=3, settings=settings, digest=digest(settings))


def changed(settings: str, section: str, name: str, value: Any) -> str:
    found = json.loads(settings)
    found[section][name] = value
    return json.dumps(found)


@pytest.mark.parametrize(
    ("section", "name", "value", "said"),
    [
        ("train", "clients", 1 << 40, "clients; a client takes"),
        ("data", "size", 1 << 20, "pixels a side; a client takes"),
        ("train", "clients", 1, "offers place 2 of 1"),
    ],
)
def test_an_offer_that_would_exhaust_a_client(
    configure: Callable[..., Config], section: str, name: str, value: Any, said: str
) -> None:
    settings = changed(settings_for_clients(configure()), section, name, value)
    given = message_class("Offer")(client=2, clients=3, settings=settings)
    with pytest.raises(RefusedError, match=said):
        Participant("digits", whole=True).prepare(given)


def test_data_that_cannot_be_loaded_as_a_server_wants_are_its_fault(
    configure: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Images of 2,000 pixels a side are possible, and too many for this machine.
    monkeypatch.setattr("cutlayer.client.participant.load_both", lambda *_, **__: torch.empty(1 << 58))
    given = message_class("Offer")(client=0, clients=3, settings=settings_for_clients(configure()))
    with pytest.raises(RefusedError, match="offer cannot be used"):
        Participant("digits", whole=True).prepare(given)


def test_settings_without_end_are_no_settings() -> None:
    for text in ("[" * 100_000, "null", "[]"):
        with pytest.raises(RefusedError, match="cannot be read"):
            Participant("digits").prepare(message_class("Offer")(settings=text))


def bomb(elements: int) -> bytes:
    """A frame of some hundred bytes that says that it has so many elements."""
    return encode_integers(torch.zeros(1, dtype=torch.int64).expand(elements))


@pytest.mark.parametrize("mode", ["parallel", "u-shaped"])
def test_no_frame_of_a_server_takes_more_memory_than_what_it_answers(
    configure: Callable[..., Config], mode: str
) -> None:
    how = ["train.mode=u-shaped", 'model.cut=["layer1", "fc"]'] if mode == "u-shaped" else []
    settings = settings_for_clients(configure(*how))
    joined = Participant("digits", whole=True)
    ready = joined.prepare(message_class("Offer")(client=0, clients=3, settings=settings))
    joined.begin(message_class("Welcome")(mean=ready.mean, std=ready.std))
    frame = bomb(1 << 22)
    assert len(frame) < 200
    assert joined.largest_message < 8 << 20
    joined.handle(BeginStep(0, 0, 0, 0.1, Share.GRADIENTS))
    wrong: list[Message] = [
        (Smashed if mode == "u-shaped" else Gradient)(0, frame),
        SyncDown(0, frame, Share.WEIGHTS, len(frame), 0.1, False),
        SyncDown(0, frame, Share.BUFFERS, 0, 0.1, False),
    ]
    for message in wrong:
        with pytest.raises(LimitError):
            joined.handle(message)
    joined.handle(Evaluate(7, 0, 5))
    if mode == "u-shaped":
        with pytest.raises(LimitError):
            joined.handle(Smashed(7, frame))


def test_the_server_s_task_is_imported_only_if_it_is_allowed(offer: Any) -> None:
    with pytest.raises(TaskError, match=r"nothing was imported.*--allow-task focal_tasks:Focal"):
        Participant("digits", whole=True).prepare(offer)
    assert "focal_tasks" not in sys.modules
    mine = OwnLoss.of(F.cross_entropy, Target("integers", (), 10))
    ready = Participant("digits", whole=True, tasks={"focal_tasks:Focal": lambda gamma: mine}).prepare(offer)
    assert "focal_tasks" not in sys.modules
    assert ready.digest == offer.digest
    allowed = Participant("digits", whole=True, allow_tasks=["focal_tasks:Focal"])
    assert allowed.prepare(offer).digest == offer.digest
    assert "focal_tasks" in sys.modules
