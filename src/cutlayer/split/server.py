"""The server's half of a split model: loss and gradients for the smashed data of all clients."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor, nn

from cutlayer.errors import NonFiniteError
from cutlayer.seeding import undisturbed
from cutlayer.split.client import MakeOptimizer
from cutlayer.split.mean import add_weighted
from cutlayer.split.update import Updater, UpdateRule
from cutlayer.split.vectors import device_of


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

    def __init__(
        self,
        part: nn.Module,
        make_optimizer: MakeOptimizer,
        loss: Loss,
        *,
        clip_gradient: float = 0.0,
        guarded: bool = False,
        rule: UpdateRule | None = None,
    ) -> None:
        """`clip_gradient` is the largest norm that one batch adds to the gradient; 0 for no limit.

        `guarded`: batches come from parties that are not trusted. What is not finite leaves no trace.
        """
        self.part = part.train()
        self.loss = loss
        self.clip_gradient = clip_gradient
        self.guarded = guarded
        self.parameters = [p for p in part.parameters() if p.requires_grad]
        self.optimizer = make_optimizer(self.parameters) if self.parameters else None
        self.device = device_of(part)
        self.rule = rule or UpdateRule()
        self.updater = Updater(self.parameters, self.optimizer, self.rule)
        self._collected: list[Tensor | None] | None = None
        self._in_flight: dict[int, tuple[Tensor, Tensor]] = {}

    def train(self, smashed: Tensor, targets: Tensor, weight: float = 1.0) -> tuple[float, Tensor]:
        """One client's batch: its loss, and the gradient of the loss for its smashed data."""
        smashed = smashed.detach().requires_grad_()
        with self._undone_unless_finite():
            loss = self.loss.loss(self.run(smashed), targets.to(smashed.device))
            value = _finite(float(loss.detach()))
            return value, self._collect(loss, smashed, None, weight)

    def train_fused(
        self, smashed: Sequence[Tensor], targets: Sequence[Tensor], weights: Sequence[float]
    ) -> tuple[list[float], list[Tensor]]:
        """All clients' batches in one pass. Differs from one pass each only through batch norm."""
        if len(smashed) == 1:
            loss, gradient = self.train(smashed[0], targets[0], weights[0])
            return [loss], [gradient]
        sizes = [len(batch) for batch in targets]
        together = torch.cat(list(smashed)).requires_grad_()
        with self._undone_unless_finite():
            each = self.loss.losses(self.run(together), torch.cat(list(targets)).to(together.device))
            means = torch.stack([part.mean() for part in torch.split(each, sizes)])
            losses: list[float] = [_finite(loss) for loss in means.detach().tolist()]
            mean = torch.dot(means, torch.tensor(weights, dtype=means.dtype, device=means.device))
            gradients = torch.split(self._collect(mean, together, None, 1.0), sizes)
        return losses, [g / w for g, w in zip(gradients, weights, strict=True)]

    def forward(self, key: int, smashed: Tensor) -> Tensor:
        """U-shape: the features for the client's tail. `key` identifies the batch until its backward."""
        smashed = smashed.detach().requires_grad_()
        with self._undone_unless_finite():
            features = self.run(smashed)
            if self.guarded and not bool(torch.isfinite(features).all()):
                raise NonFiniteError("its features are not finite")
        self._in_flight[key] = (smashed, features)
        return features.detach()

    def backward(self, key: int, gradient: Tensor, weight: float = 1.0) -> Tensor:
        """U-shape: backpropagate the gradient at the tail's input to that at the head's output."""
        smashed, features = self._in_flight.pop(key)
        return self._collect(features, smashed, gradient, weight)

    @torch.no_grad()
    def sound(self, smashed: Tensor) -> bool:
        """Whether the model itself is well: finite weights, and finite outputs for blank smashed data."""
        if not all(bool(torch.isfinite(p).all()) for p in self.parameters):
            return False
        self.part.eval()
        try:
            return bool(torch.isfinite(self.run(torch.zeros_like(smashed))).all())
        finally:
            self.part.train()

    def left_out(self, taken: Sequence[float], left: Sequence[float]) -> None:
        """Scale the gradients collected so far, after clients with the weights `left` are out of the mean."""
        if self._collected is None or not left:
            return
        scale = (sum(taken) + sum(left)) / sum(taken)
        self._collected = [None if g is None else g * scale for g in self._collected]

    def update(self, lr: float) -> None:
        """One optimizer step with the gradients collected since the last, or what the rule makes of it."""
        collected, self._collected = self._collected, None
        if collected is not None:
            self.updater.apply(collected, lr)

    def run(self, smashed: Tensor) -> Tensor:
        """The part's outputs, computed in the precision of the run; they are float32."""
        with undisturbed(), self.rule.autocast(self.device):
            found: Tensor = self.part(smashed)
        return found if found.dtype != torch.bfloat16 else found.float()

    def discard(self) -> None:
        """Drop the gradients and batches of a step that was begun, so that it can be repeated."""
        self._collected = None
        self._in_flight.clear()

    def _collect(self, output: Tensor, smashed: Tensor, gradient: Tensor | None, weight: float) -> Tensor:
        found = torch.autograd.grad(output, [smashed, *self.parameters], gradient, allow_unused=True)
        if self.guarded and not all(bool(torch.isfinite(g).all()) for g in found if g is not None):
            raise NonFiniteError("its gradients are not finite")
        if self.clip_gradient:
            norms = [torch.linalg.vector_norm(g) for g in found[1:] if g is not None]
            norm = float(torch.linalg.vector_norm(torch.stack(norms))) if norms else 0.0
            weight *= min(1.0, self.clip_gradient / norm) if norm else 1.0
        before = self._collected or [None] * len(self.parameters)
        self._collected = [
            old if new is None else add_weighted(old, new, weight)
            for old, new in zip(before, found[1:], strict=True)
        ]
        return torch.zeros_like(smashed) if found[0] is None else found[0]

    @contextmanager
    def _undone_unless_finite(self) -> Iterator[None]:
        """Batch norm takes nothing from a batch whose loss or gradients are not finite."""
        before = [buffer.clone() for buffer in self.part.buffers()] if self.guarded else []
        try:
            yield
        except NonFiniteError:
            for buffer, value in zip(self.part.buffers(), before, strict=False):
                buffer.copy_(value)
            raise


def _finite(loss: float) -> float:
    if not math.isfinite(loss):
        raise NonFiniteError(f"the loss is {loss}")
    return loss
