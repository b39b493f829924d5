"""The client's half of a split model: the head and, in a U-shaped model, the tail.

`ClientModel` holds weights and optimizer. `ClientHalf` holds what belongs to one client: its batch-norm
buffers and the batch between forward and backward. If gradients are averaged each step, all clients have the
same weights and can share one `ClientModel` in one process, so that a thousand of them fit in memory.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from cutlayer.seeding import undisturbed
from cutlayer.split.update import Updater, UpdateRule
from cutlayer.split.vectors import assign, device_of, flatten, unflatten

MakeOptimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


class ClientModel:
    """Client-side weights and their optimizer.

    `parts` is (head,) or (head, tail). Vectors of gradients and weights follow the order of
    `parameters`, which both ends of a connection derive from the same model.
    """

    def __init__(
        self,
        parts: Sequence[nn.Module],
        make_optimizer: MakeOptimizer | None = None,
        rule: UpdateRule | None = None,
    ) -> None:
        self.parts = tuple(parts)
        self.rule = rule or UpdateRule()
        self.head = parts[0].train()
        self.tail = parts[1].train() if len(parts) > 1 else None
        trained = [[p for p in part.parameters() if p.requires_grad] for part in parts]
        self.head_parameters = trained[0]
        self.tail_parameters = trained[1] if len(parts) > 1 else []
        self.parameters = [*self.head_parameters, *self.tail_parameters]
        self.optimizer = make_optimizer(self.parameters) if make_optimizer and self.parameters else None
        self.updater = Updater(self.parameters, self.optimizer, self.rule)
        self.parameter_names = [n for part in parts for n, p in part.named_parameters() if p.requires_grad]
        # The dictionaries that hold the buffers, so that one client's buffers can replace another's.
        found = [
            (f"{prefix}.{name}".removeprefix("."), (module._buffers, name))
            for part in parts
            for prefix, module in part.named_modules()
            for name, buffer in module._buffers.items()
            if buffer is not None and name not in module._non_persistent_buffers_set
        ]
        self.buffer_names = [name for name, _ in found]
        self.slots = [slot for _, slot in found]
        self.applied = -1
        self.device = device_of(*parts)

    def buffers(self) -> list[Tensor]:
        """The buffers that the model uses now."""
        return [buffer for place, name in self.slots if (buffer := place[name]) is not None]

    def hang(self, buffers: Sequence[Tensor]) -> None:
        """Make the model use, and update, the given buffers."""
        for (place, name), buffer in zip(self.slots, buffers, strict=True):
            place[name] = buffer

    def apply(self, gradients: Sequence[Tensor | None], lr: float) -> None:
        """One optimizer step with the given gradients, or what the rule makes of them."""
        self.updater.apply(gradients, lr)

    def run(self, part: nn.Module, x: Tensor) -> Tensor:
        """Compute in the precision of the run; the result is float32."""
        with undisturbed(), self.rule.autocast(self.device):
            found: Tensor = part(x)
        return found if found.dtype != torch.bfloat16 else found.float()


class ClientHalf:
    """One client: computes smashed data from batches, and weight gradients from gradients of smashed data."""

    def __init__(self, model: ClientModel, *, shared: bool = False) -> None:
        self.model = model
        self.shared = shared
        # A batch-norm layer updates its buffers in place: clients that share a model need their own.
        self.buffers = [b.clone() for b in model.buffers()] if shared else model.buffers()
        self.gradients: list[Tensor | None] = []
        self._smashed: Tensor | None = None

    def forward(self, images: Tensor) -> Tensor:
        """The smashed data of a batch. The autograd graph is kept until `backward`."""
        self.hang()
        self._smashed = self.model.run(self.model.head, images)
        return self._smashed.detach()

    def backward(self, gradient: Tensor) -> None:
        """Backpropagate the gradient of the smashed data into `gradients`, those of the head's weights."""
        smashed, self._smashed = self._smashed, None
        if smashed is None:
            raise RuntimeError("backward without a forward before it")
        head = self.model.head_parameters
        tail = self.gradients if self.model.tail is not None else []
        found: Sequence[Tensor | None] = ()
        if head and smashed.requires_grad:
            found = torch.autograd.grad(smashed, head, gradient, allow_unused=True)
        self.gradients = [*(found or [None] * len(head)), *tail]

    def finish_forward(
        self, features: Tensor, targets: Tensor, mean_loss: Callable[[Tensor, Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """U-shape: run the tail on the server's features. The loss, and its gradient for the server."""
        if self.model.tail is None:
            raise RuntimeError("this client has no tail")
        self.hang()
        features = features.detach().requires_grad_()
        loss = mean_loss(self.model.run(self.model.tail, features), targets.to(features.device))
        found = torch.autograd.grad(loss, [features, *self.model.tail_parameters], allow_unused=True)
        self.gradients = list(found[1:])
        return loss.detach(), found[0]

    def gradient_vector(self) -> Tensor:
        """The gradients of all weights as one vector, head first; missing ones are zeros.

        Clears the gradients.
        """
        found = zip(self.gradients, self.model.parameters, strict=True)
        vector = flatten([torch.zeros_like(p) if g is None else g for g, p in found])
        self.gradients = []
        return vector

    def step(self, lr: float) -> None:
        """Update this client's own weights with its own gradients."""
        self.model.apply(self.gradients, lr)
        self.gradients = []

    def apply_mean(self, gradients: Callable[[], Tensor], lr: float, number: int) -> None:
        """Update with averaged gradients, once for each step `number`: a second call does nothing.

        So repeated messages are harmless, and clients that share a model can all call it: `gradients` is
        called, and the vector decoded, only the first time.
        """
        self.gradients = []
        if number > self.model.applied:
            self.model.apply(unflatten(gradients(), self.model.parameters), lr)
            self.model.applied = number

    def weight_vector(self) -> Tensor:
        """All weights as one vector."""
        return flatten(self.model.parameters)

    def load_weights(self, vector: Tensor) -> None:
        """Replace all weights; the optimizer keeps its own momentum."""
        assign(self.model.parameters, vector)

    def buffer_vector(self) -> Tensor:
        """Batch-norm statistics and other buffers as one vector."""
        return flatten(self.buffers)

    def load_buffers(self, vector: Tensor) -> None:
        """Replace the buffers."""
        assign(self.buffers, vector)

    def hang(self) -> None:
        """Put this client's buffers into the model."""
        if self.shared:
            self.model.hang(self.buffers)
