"""The server's half of a split model: loss and gradients for the smashed data of all clients."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from cutlayer.split.client import MakeOptimizer
from cutlayer.split.mean import add_weighted


class Loss(Protocol):
    """What the server minimises, where targets come to it. A task of `cutlayer.tasks` is one."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean over a batch."""

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """That of each sample."""


class ServerHalf:
    """Server-side weights, their optimizer, and the gradients collected so far in this step.

    A step is: `train` once for each client in client order (or once with all batches fused), then
    `update`. In a U-shape the loss is the client's, so a batch takes `forward` and later `backward`.
    The gradient that a client gets back is that of its own loss; its weight in the mean only enters the
    server's own gradients.
    """

    def __init__(self, part: nn.Module, make_optimizer: MakeOptimizer, loss: Loss) -> None:
        self.part = part.train()
        self.loss = loss
        self.parameters = [p for p in part.parameters() if p.requires_grad]
        self.optimizer = make_optimizer(self.parameters) if self.parameters else None
        self._collected: list[Tensor | None] | None = None
        self._in_flight: dict[int, tuple[Tensor, Tensor]] = {}

    def train(self, smashed: Tensor, targets: Tensor, weight: float = 1.0) -> tuple[float, Tensor]:
        """One client's batch: its loss, and the gradient of the loss for its smashed data."""
        smashed = smashed.detach().requires_grad_()
        loss = self.loss.loss(self.part(smashed), targets)
        gradient = self._collect(loss, smashed, None, weight)
        return float(loss.detach()), gradient

    def train_fused(
        self, smashed: Sequence[Tensor], targets: Sequence[Tensor], weights: Sequence[float]
    ) -> tuple[list[float], list[Tensor]]:
        """All clients' batches in one pass. Differs from one pass each only through batch norm."""
        if len(smashed) == 1:
            loss, gradient = self.train(smashed[0], targets[0], weights[0])
            return [loss], [gradient]
        sizes = [len(batch) for batch in targets]
        together = torch.cat(list(smashed)).requires_grad_()
        each = self.loss.losses(self.part(together), torch.cat(list(targets)))
        means = torch.stack([part.mean() for part in torch.split(each, sizes)])
        mean = torch.dot(means, torch.tensor(weights, dtype=means.dtype, device=means.device))
        gradients = torch.split(self._collect(mean, together, None, 1.0), sizes)
        losses: list[float] = means.detach().tolist()
        return losses, [g / w for g, w in zip(gradients, weights, strict=True)]

    def forward(self, key: int, smashed: Tensor) -> Tensor:
        """U-shape: the features for the client's tail. `key` identifies the batch until its backward."""
        smashed = smashed.detach().requires_grad_()
        features = self.part(smashed)
        self._in_flight[key] = (smashed, features)
        return features.detach()  # type: ignore[no-any-return]

    def backward(self, key: int, gradient: Tensor, weight: float = 1.0) -> Tensor:
        """U-shape: backpropagate the gradient at the tail's input to that at the head's output."""
        smashed, features = self._in_flight.pop(key)
        return self._collect(features, smashed, gradient, weight)

    def update(self, lr: float) -> None:
        """One optimizer step with the gradients collected since the last update."""
        collected, self._collected = self._collected, None
        if collected is None or self.optimizer is None:
            return
        for parameter, gradient in zip(self.parameters, collected, strict=True):
            parameter.grad = gradient
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        self.optimizer.zero_grad()

    def discard(self) -> None:
        """Drop the gradients and batches of a step that was begun, so that it can be repeated."""
        self._collected = None
        self._in_flight.clear()

    def _collect(self, output: Tensor, smashed: Tensor, gradient: Tensor | None, weight: float) -> Tensor:
        found = torch.autograd.grad(output, [smashed, *self.parameters], gradient, allow_unused=True)
        before = self._collected or [None] * len(self.parameters)
        self._collected = [
            old if new is None else add_weighted(old, new, weight)
            for old, new in zip(before, found[1:], strict=True)
        ]
        return torch.zeros_like(smashed) if found[0] is None else found[0]
