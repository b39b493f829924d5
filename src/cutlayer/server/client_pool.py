"""What a run needs of its clients beside their messages, whether they are in this process or elsewhere."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from torch import Tensor

from cutlayer.data.spec import DataSpec
from cutlayer.wire.transport import Transport


class ClientPool(Protocol):
    """The clients of a run. In one process or over a network: the only difference between two runs."""

    @property
    def transport(self) -> Transport:
        """How they are reached."""

    @property
    def data_spec(self) -> DataSpec:
        """What must be known of the clients' data."""

    def begin(self, number: int) -> None:
        """A stretch of training begins after `number` steps, with every client in the state that it had."""

    def admit_newcomers(self, number: int) -> Sequence[int]:
        """Let those in who have come back, before the step of that number; who they are."""

    def evaluator(self) -> tuple[int, int] | None:
        """A client that has a test set, and how many samples; None if nobody who has one is there."""

    def state(self, number: int) -> dict[str, Tensor]:
        """What clients have learned after `number` steps, by the names that it has in a checkpoint."""

    def restore(self, tensors: Mapping[str, Tensor], number: int) -> None:
        """Continue from what `state` gave."""

    def rolled_back(self, number: int, reason: str) -> None:
        """The run goes back to `number` steps, because of what is told to everybody. Wait for clients."""
