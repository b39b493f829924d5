"""The client's half of a split model: the head and, in a U-shaped model, the tail.

`ClientModel` holds weights and optimizer. `ClientHalf` holds what belongs to one client: its batch-norm
buffers and the batch between forward and backward. If gradients are averaged each step, all clients have the
same weights and can share one `ClientModel` in one process, so that a thousand of them fit in memory.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cutlayer.seeding import undisturbed
from cutlayer.split.tensors import (
    Inputs,
    Tensors,
    apply,
    as_float32,
    call,
    floats,
    gradients_for,
    like,
    main_output,
    received,
    tensors_of,
)
from cutlayer.split.weights import Updater, UpdateRule, assign, device_of, flatten, unflatten

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
        # Head and tail may share weights, as a language model's input and output embeddings do. Such a weight
        # is the head's; `tied` has its place there, and its gradient is the sum of both.
        in_head = {id(p): i for i, p in enumerate(trained[0])}
        behind = trained[1] if len(parts) > 1 else []
        self.tail_parameters = [p for p in behind if id(p) not in in_head]
        self.tied = [in_head[id(p)] for p in behind if id(p) in in_head]
        self.parameters = [*self.head_parameters, *self.tail_parameters]
        self.optimizer = make_optimizer(self.parameters) if make_optimizer and self.parameters else None
        self.updater = Updater(self.parameters, self.optimizer, self.rule)
        names: dict[int, str] = {}
        for part in parts:
            for name, parameter in part.named_parameters():
                names.setdefault(id(parameter), name)
        self.parameter_names = [names[id(parameter)] for parameter in self.parameters]
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

    def run(self, part: nn.Module, x: Inputs) -> Any:
        """Compute in the precision of the run; what comes out is float32."""
        with undisturbed(), self.rule.autocast(self.device):
            found = call(part, x) if part is self.head else part(x)
        return as_float32(found)


class ClientHalf:
    """One client: computes smashed data from batches, and weight gradients from gradients of smashed data."""

    def __init__(self, model: ClientModel, *, shared: bool = False, differences: bool = False) -> None:
        """`differences`: weights are shared as differences to the last mean, which is remembered."""
        self.model = model
        self.shared = shared
        # A batch-norm layer updates its buffers in place: clients that share a model need their own.
        self.buffers = [b.clone() for b in model.buffers()] if shared else model.buffers()
        self.last_mean = self.weight_vector() if differences else None
        """The weights that all clients had when they last averaged; at first the initial ones."""
        self.gradients: list[Tensor | None] = []
        self._smashed: Tensors | None = None
        self._tied: list[Tensor | None] = []

    def forward(self, inputs: Inputs) -> Tensors:
        """The smashed data of a batch. The autograd graph is kept until `backward`."""
        self.hang()
        self._smashed = smashed = self.model.run(self.model.head, inputs)
        return apply(Tensor.detach, smashed)

    def backward(self, gradient: Tensors) -> None:
        """Backpropagate the gradient of the smashed data into `gradients`, those of the head's weights."""
        smashed, self._smashed = self._smashed, None
        if smashed is None:
            raise RuntimeError("backward without a forward before it")
        head = self.model.head_parameters
        tail = self.gradients if self.model.tail is not None else []
        found: Sequence[Tensor | None] = ()
        outputs, given = gradients_for(smashed, gradient)
        if head and outputs:
            found = torch.autograd.grad(outputs, head, given, allow_unused=True)
        gradients: list[Tensor | None] = [*(found or [None] * len(head))]
        for place, tied in zip(self.model.tied, self._tied, strict=False):
            own = gradients[place]
            gradients[place] = tied if own is None else own if tied is None else own + tied
        self._tied = []
        self.gradients = [*gradients, *tail]

    def finish_forward(
        self, features: Tensors, targets: Tensor, mean_loss: Callable[[Tensor, Tensor], Tensor]
    ) -> tuple[Tensor, Tensors]:
        """U-shape: run the tail on the server's features. The loss, and its gradient for the server."""
        if self.model.tail is None:
            raise RuntimeError("this client has no tail")
        self.hang()
        features = received(features)
        outputs = main_output(self.model.run(self.model.tail, features))
        loss = mean_loss(outputs, targets.to(outputs.device))
        taken = floats(features)
        inputs = tensors_of(taken)
        tied = [self.model.parameters[place] for place in self.model.tied]
        wanted = [*inputs, *self.model.tail_parameters, *tied]
        found = torch.autograd.grad(loss, wanted, allow_unused=True)
        self.gradients = list(found[len(inputs) : len(wanted) - len(tied)])
        self._tied = list(found[len(wanted) - len(tied) :])
        back = zip(found, inputs, strict=False)
        return loss.detach(), like(taken, [torch.zeros_like(x) if g is None else g for g, x in back])

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

    def differences(self) -> Tensor:
        """How far the weights have moved since clients last averaged them."""
        if self.last_mean is None:
            raise RuntimeError("this client does not remember the last mean")
        return self.weight_vector() - self.last_mean

    def add_differences(self, vector: Tensor) -> None:
        """Take over the mean of all clients' differences: afterwards all have the same weights again."""
        if self.last_mean is None:
            raise RuntimeError("this client does not remember the last mean")
        if vector.shape != self.last_mean.shape:
            raise ValueError(f"{vector.numel()} differences for {self.last_mean.numel()} weights")
        self.last_mean = self.last_mean + vector
        self.load_weights(self.last_mean)

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
