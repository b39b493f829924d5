"""The server's half of a split model: loss and gradients for the smashed data of all clients."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from cutlayer.errors import ModelError, NonFiniteError
from cutlayer.seeding import undisturbed
from cutlayer.split.client import MakeOptimizer
from cutlayer.split.tensors import (
    Tensors,
    all_finite,
    apply,
    as_float32,
    blames_shapes,
    concatenate,
    divide_batch,
    divided,
    floats,
    gradients_for,
    like,
    main_output,
    received,
    tensors_of,
)
from cutlayer.split.weights import Updater, UpdateRule, add_weighted, device_of


class Loss(Protocol):
    """What the server minimises, where targets come to it. A task of `cutlayer.tasks` is one."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean over a batch."""

    def batch_losses(self, outputs: Tensor, targets: Tensor, sizes: Sequence[int]) -> Tensor:
        """The mean of each of several batches that went through the model as one."""


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
        self._in_flight: dict[int, tuple[Tensors, Tensors]] = {}

    def train(self, smashed: Tensors, targets: Tensor, weight: float = 1.0) -> tuple[float, Tensors]:
        """One client's batch: its loss, and the gradient of the loss for its smashed data."""
        smashed = received(smashed)
        with self._undone_unless_finite():
            loss = self.loss.loss(main_output(self.run(smashed)), targets.to(self.device))
            value = _finite(float(loss.detach()))
            return value, self._collect(loss, smashed, None, weight)

    def train_fused(
        self, smashed: Sequence[Tensors], targets: Sequence[Tensor], weights: Sequence[float]
    ) -> tuple[list[float], list[Tensors]]:
        """All clients' batches in one pass. Differs from one pass each only through batch norm."""
        if len(smashed) == 1:
            loss, gradient = self.train(smashed[0], targets[0], weights[0])
            return [loss], [gradient]
        sizes = [len(batch) for batch in targets]
        together = received(concatenate(smashed))
        with self._undone_unless_finite():
            outputs = main_output(self.run(together))
            means = self.loss.batch_losses(outputs, torch.cat(list(targets)).to(outputs.device), sizes)
            losses: list[float] = [_finite(loss) for loss in means.detach().tolist()]
            mean = torch.dot(means, torch.tensor(weights, dtype=means.dtype, device=means.device))
            gradients = divide_batch(self._collect(mean, together, None, 1.0), sizes)
        return losses, [divided(g, w) for g, w in zip(gradients, weights, strict=True)]

    def forward(self, key: int, smashed: Tensors) -> Tensors:
        """U-shape: the features for the client's tail. `key` identifies the batch until its backward."""
        smashed = received(smashed)
        with self._undone_unless_finite():
            features: Tensors = self.run(smashed)
            if self.guarded and not all_finite(features):
                raise NonFiniteError("its features are not finite")
        self._in_flight[key] = (smashed, features)
        return apply(Tensor.detach, features)

    def backward(self, key: int, gradient: Tensors, weight: float = 1.0) -> Tensors:
        """U-shape: backpropagate the gradient at the tail's input to that at the head's output."""
        smashed, features = self._in_flight.pop(key)
        return self._collect(features, smashed, gradient, weight)

    @torch.no_grad()
    def sound(self, smashed: Tensors) -> bool:
        """Whether the model itself is well: finite weights, and finite outputs for blank smashed data."""
        if not all_finite(self.parameters):
            return False
        self.part.eval()
        try:
            return all_finite(self.run(apply(torch.zeros_like, smashed)))
        finally:
            self.part.train()

    def exceeds(self, limit: float) -> bool:
        """Whether a weight is larger than that, or no number."""
        return any(not float(p.detach().abs().max()) <= limit for p in self.parameters if p.numel())

    def left_out(self, taken: Sequence[float], left: Sequence[float]) -> None:
        """Scale the gradients collected so far, after clients with the weights `left` are out of the mean."""
        if self._collected is None or not left:
            return
        scale = (sum(taken) + sum(left)) / sum(taken)
        self._collected = [None if g is None else g * scale for g in self._collected]

    @property
    def collected(self) -> list[Tensor | None]:
        """The gradients collected so far in this step; None where a parameter has none."""
        return self._collected or [None] * len(self.parameters)

    def collect_instead(self, gradients: Sequence[Tensor | None]) -> None:
        """Go on with other gradients than those collected here, as with a sum over several processes."""
        self._collected = list(gradients) if any(g is not None for g in gradients) else None

    def update(self, lr: float) -> None:
        """One optimizer step with the gradients collected since the last, or what the rule makes of it."""
        collected, self._collected = self._collected, None
        if collected is not None:
            self.updater.apply(collected, lr)

    def run(self, smashed: Tensors) -> Any:
        """The part's outputs, computed in the precision of the run; they are float32."""
        try:
            with undisturbed(), self.rule.autocast(self.device):
                found = self.part(smashed)
        except RuntimeError as error:
            said = str(error).strip().partition("\n")[0]
            # Of parties that are not trusted, whoever judges their batches must see what happened.
            if self.guarded or type(error) is not RuntimeError or not blames_shapes(said):
                raise
            forms = ", ".join(str(list(x.shape)) for x in tensors_of(smashed))
            raise ModelError(
                f"the server's half fails on smashed data {forms} ({said}); its layers must take what those "
                "before the cut give"
            ) from error
        return as_float32(found)

    def discard(self) -> None:
        """Drop the gradients and batches of a step that was begun, so that it can be repeated."""
        self._collected = None
        self._in_flight.clear()

    def _collect(self, output: Tensors, smashed: Tensors, gradient: Tensors | None, weight: float) -> Tensors:
        taken = floats(smashed)
        inputs = tensors_of(taken)
        outputs, gradients = ([output], None) if gradient is None else gradients_for(output, gradient)
        found = torch.autograd.grad(outputs, [*inputs, *self.parameters], gradients, allow_unused=True)  # type: ignore[arg-type]
        if self.guarded and not all_finite(found):
            raise NonFiniteError("its gradients are not finite")
        back, own = found[: len(inputs)], found[len(inputs) :]
        if self.clip_gradient:
            norms = [torch.linalg.vector_norm(g) for g in own if g is not None]
            norm = float(torch.linalg.vector_norm(torch.stack(norms))) if norms else 0.0
            weight *= min(1.0, self.clip_gradient / norm) if norm else 1.0
        before = self._collected or [None] * len(self.parameters)
        self._collected = [
            old if new is None else add_weighted(old, new, weight)
            for old, new in zip(before, own, strict=True)
        ]
        return like(
            taken, [torch.zeros_like(x) if g is None else g for g, x in zip(back, inputs, strict=True)]
        )

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
