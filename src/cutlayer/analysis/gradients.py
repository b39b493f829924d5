"""The gradient of a split model on one batch, with and without compression at the cut."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cutlayer.codecs import Codec
from cutlayer.errors import InputError
from cutlayer.seeding import seeded
from cutlayer.split import CutLayer
from cutlayer.split.tensors import Inputs, call
from cutlayer.split.weights import device_of

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Gradient:
    """Gradients by parameter name: [g^c, g^s] of the paper, and the compression error that came with it."""

    client: dict[str, Tensor]
    server: dict[str, Tensor]
    loss: float
    error: float = 0.0
    """||epsilon||: the norm of the compression error of the smashed data."""
    relative_error: float = 0.0
    """||epsilon||^2 / ||x||^2: the relative squared error of the smashed data."""

    @property
    def named(self) -> dict[str, Tensor]:
        """The gradients of both sides."""
        return {**self.client, **self.server}

    def vector(self, part: str = "all") -> Tensor:
        """All elements in one vector of doubles; `part` is all, client or server."""
        chosen = {"all": self.named, "client": self.client, "server": self.server}[part]
        if not chosen:
            return torch.zeros(0, dtype=torch.float64)
        return torch.cat([g.reshape(-1).double() for g in chosen.values()])


def mean_gradient(gradients: Sequence[Gradient]) -> Gradient:
    """The mean over clients or batches; its errors are the means of theirs, `error` the paper's E."""
    if not gradients:
        raise InputError("the mean of no gradients: expected one or more")

    def mean(dicts: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        return {name: torch.stack([d[name] for d in dicts]).mean(0) for name in dicts[0]}

    return Gradient(
        mean([g.client for g in gradients]),
        mean([g.server for g in gradients]),
        sum(g.loss for g in gradients) / len(gradients),
        sum(g.error for g in gradients) / len(gradients),
        sum(g.relative_error for g in gradients) / len(gradients),
    )


class Probe:
    """One batch on a split model: computes its gradient under any codec, as often as needed.

    `parts` comes from `cutlayer.cut`: (client, server), or (head, body, tail) in a U-shape. The parts are
    copied, so that neither weights nor batch-norm statistics of the model change, and keep their mode
    (training or evaluation). The client's forward pass runs once.

    >>> probe = Probe(cutlayer.cut(model, "layer2"), images, labels)
    >>> true, biased = probe.gradient(), probe.gradient(cutlayer.codec("ms"))
    """

    def __init__(
        self,
        parts: Sequence[nn.Module],
        images: Inputs,
        labels: Tensor,
        *,
        loss: Loss = F.cross_entropy,
        seed: int = 0,
    ) -> None:
        if len(parts) not in (2, 3):
            raise InputError(f"{len(parts)} parts: expected client and server, or head, body and tail")
        # One copy of all parts together, so that shared modules stay shared.
        self._parts = copy.deepcopy(nn.ModuleList(parts))
        self._labels, self._loss, self._seed = labels, loss, seed
        self._names = [
            {f"{number}/{name}": p for name, p in part.named_parameters() if p.requires_grad}
            for number, part in enumerate(self._parts)
        ]
        with seeded(seed, device_of(*parts)), torch.enable_grad():
            self.smashed: Tensor = call(self._parts[0], images)
        """The smashed data of the batch."""

    def gradient(self, up: Codec | None = None, down: Codec | None = None, *, seed: int = 0) -> Gradient:
        """The gradient with smashed data compressed by `up`, and the returned gradients by `down`.

        Codecs are straight-through in the backward pass, as in training. In a U-shape the second cut has the
        directions swapped. The same `seed` gives the same random choices of the codecs.
        """
        first = CutLayer(up, down, seed=seed)
        second = CutLayer(down, up, seed=seed + 1)
        parameters = [p for names in self._names for p in names.values()]
        # Dropout and the like are not to be compared: they get the same random numbers each time.
        with seeded(self._seed + 1, self.smashed.device), torch.enable_grad():
            received = first(self.smashed)
            out = self._parts[1](received)
            if len(self._parts) == 3:
                out = self._parts[2](second(out))
            loss = self._loss(out, self._labels)
            found = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
        values = dict(zip((n for names in self._names for n in names), found, strict=True))
        sides: list[dict[str, Tensor]] = [{}, {}]
        for number, names in enumerate(self._names):
            for name, p in names.items():
                g = values[name]
                plain = name.split("/", 1)[1]
                sides[number == 1][plain] = torch.zeros_like(p) if g is None else g.detach()
        smashed = self.smashed.detach().double()
        error, size = (float(torch.linalg.vector_norm(t)) for t in (received.detach() - smashed, smashed))
        relative = (error / size) ** 2 if size else (0.0 if error == 0 else float("inf"))
        return Gradient(sides[0], sides[1], float(loss.detach()), error, relative)
