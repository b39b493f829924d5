"""What training asks of a task: targets to bytes and back, the loss, and the scores of a batch."""

from typing import Protocol

from torch import Tensor


class Task(Protocol):
    """A task, as both halves and the evaluation use it. Outputs and targets have the samples in front."""

    def pack(self, targets: Tensor) -> bytes:
        """The targets of a batch as bytes."""

    def unpack(self, data: bytes, count: int) -> Tensor:
        """The targets in bytes from another party, `count` samples. Raises MessageError if they cannot be."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of a batch, which is minimised."""

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each sample."""

    def score(self, outputs: Tensor, targets: Tensor) -> tuple[float, int, int]:
        """The summed loss of a test batch, and how many samples are right within one and five guesses."""
