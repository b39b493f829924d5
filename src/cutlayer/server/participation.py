"""Who takes part in each step, and where the clients' half of the model is kept: one class for each way.

Here is the plainest: everybody, each with a half of its own. `sampled_rounds.py` draws a sample for each
round; in `asynchronous/mode.py` everybody works at its own pace. There the server keeps the clients' half.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from cutlayer.aggregation.base import Round
from cutlayer.protocol.plan import Plan, Step
from cutlayer.server.client_pool import ClientPool
from cutlayer.server.modes import ServerWork
from cutlayer.server.results import StepResult
from cutlayer.server.step_io import Parties
from cutlayer.wire.messages.types import Share, SyncUp


class Participation(ABC):
    """Who takes part in the steps of a run. It is given what all ways need; some need more."""

    def __init__(self, work: ServerWork, parties: Parties, plan: Plan, clients: ClientPool) -> None:
        self.parties = parties
        """How those who take part are reached."""
        self._work = work
        self._plan = plan
        self._clients = clients

    def admit(self, number: int) -> Sequence[int]:
        """Let those in who have come back, before the step of that number; who they are."""
        return () if self.parties.transport.patient else self._clients.admit_newcomers(number)

    @abstractmethod
    def begin_step(self, number: int) -> tuple[Step, int]:
        """The step with those who take part, who get what they need first; and the bytes of that for each."""

    def run(self, step: Step, size: int, together: Callable[[Step, int], StepResult]) -> StepResult:
        """Run the step that was begun. `together` runs one that all its clients take at the same time."""
        return together(step, size)

    @abstractmethod
    def deliver(self, mean: Round, step: Step) -> tuple[Sequence[int], int]:
        """Have the mean of what clients shared taken over; to whom it was sent, and the bytes for each."""

    def kept(self, number: int) -> SyncUp | None:
        """The clients' half after `number` steps as if one client had shared it; None if clients have it."""
        return None

    @abstractmethod
    def holders(self, number: int, holder: int) -> tuple[Sequence[int], Share]:
        """Whom to ask for the clients' half after `number` steps, and for what of it.

        `holder` is who has the current weights in mode relay.
        """

    def quiet(self, client: int) -> None:
        """Make sure that the next answer of a client is to what it is asked next."""
        return

    @abstractmethod
    def state(self, number: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What a checkpoint after `number` steps needs: tensors by name, and the rest as plain JSON."""

    @abstractmethod
    def restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any], number: int) -> None:
        """Continue from what `state` gave."""


class AllClients(Participation):
    """Every client that is there takes part in every step, and has a half of its own."""

    def begin_step(self, number: int) -> tuple[Step, int]:
        """See `Participation.begin_step`. They have all that they need."""
        return self._plan.at(number), 0

    def deliver(self, mean: Round, step: Step) -> tuple[Sequence[int], int]:
        """See `Participation.deliver`. Everybody gets it."""
        everybody = range(len(self._plan.samples))
        return everybody, mean.deliver(step, everybody)

    def holders(self, number: int, holder: int) -> tuple[Sequence[int], Share]:
        """See `Participation.holders`. Under `sync = step` only batch-norm statistics differ."""
        if self._plan.relay:
            return [holder], Share.WEIGHTS
        share = Share.BUFFERS if self._plan.sync == "step" else Share.WEIGHTS
        return self.parties.transport.members(), share

    def state(self, number: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """See `Participation.state`."""
        return self._clients.state(number), {}

    def restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any], number: int) -> None:
        """See `Participation.restore`."""
        self._clients.restore(tensors, number)
