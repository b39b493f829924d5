"""A client takes a task of somebody's own only if its user allows it."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.nn import functional as F

from cutlayer.client.participant import Participant
from cutlayer.config.schema import Config
from cutlayer.errors import TaskError
from cutlayer.protocol.handshake import digest, settings_for_clients
from cutlayer.tasks import Target
from cutlayer.tasks.own_loss import OwnLoss
from cutlayer.wire.messages.protobuf import message_class

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
