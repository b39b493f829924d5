"""A server's half that is too large for one device: FSDP2 keeps a shard of every weight at each rank.

A pass gathers the weights of one layer after another. So all ranks make their passes at the same time, and
as many: one that has fewer clients makes up for it with blank batches, which count nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from cutlayer.errors import NonFiniteError, RankLostError
from cutlayer.protocol.tensor_forms import Forms
from cutlayer.ranks.group import RankGroup
from cutlayer.split.part import Part
from cutlayer.split.server import ServerHalf
from cutlayer.split.tensors import (
    Tensors,
    all_finite,
    floats,
    like,
    main_output,
    received,
    tensors_of,
)

# Batch norm cannot train on one value a channel.
_BLANK_SAMPLES = 2


class ShardedHalf(ServerHalf):
    """The server's half, of which each rank keeps a part. Gradients are summed over ranks by the passes."""

    def __init__(self, part: Part, *given: Any, group: RankGroup, forms: Forms, **settings: Any) -> None:
        """`forms` are those of a sample of smashed data, for blank batches. See `ServerHalf` for the rest."""
        self._mesh = _shard(part, group.world)
        self._group = group
        self._forms = forms
        self._passes = 0
        self._inside = False
        super().__init__(part, *given, **settings)

    def train(self, smashed: Tensors, targets: Tensor, weight: float = 1.0) -> tuple[float, Tensors]:
        """See `ServerHalf.train`. What is not finite raises when the pass is complete at all ranks."""
        smashed = received(smashed)
        with self._undone_unless_finite():
            self._inside = True
            loss = self.loss.loss(main_output(self.run(smashed)), targets.to(self.device))
            gradient = self._collect(loss, smashed, None, weight)
            self._inside = False
            self._passes += 1
            value = float(loss.detach())
            if not math.isfinite(value):
                raise NonFiniteError(f"the loss is {value}")
            if self.guarded and not all_finite(gradient):
                raise NonFiniteError("its gradients are not finite")
        return value, gradient

    @contextmanager
    def in_step(self, most: int) -> Iterator[None]:
        """The passes of this rank's clients are inside; every rank makes `most` of them, whatever happens."""
        self._passes = 0
        try:
            yield
        finally:
            if self._inside:
                raise RankLostError(
                    "a pass of this rank broke off in the middle, so the others cannot end theirs"
                )
            while self._passes < most:
                self._blank_pass()

    def run(self, smashed: Tensors) -> Any:
        """See `ServerHalf.run`. Outside of training, the others are commanded to make a pass, too."""
        if not self.part.training and self._group.leads:
            self._group.command("forward")
        return super().run(smashed)

    @torch.no_grad()
    def follow_run(self) -> None:
        """Take part in a pass of the leader's evaluation."""
        self.part.eval()
        try:
            super().run(self._blank())
        finally:
            self.part.train()

    def sound(self, smashed: Tensors) -> bool:
        """See `ServerHalf.sound`. A pass to try it out would need all ranks: the weights have to do."""
        return all_finite([_local(p.detach()) for p in self.parameters])

    def update(self, lr: float) -> None:
        """See `ServerHalf.update`."""
        gradients = [p.grad for p in self.parameters]
        if any(g is not None for g in gradients):
            self.updater.apply(gradients, lr)
        self.discard()

    def discard(self) -> None:
        """See `ServerHalf.discard`."""
        super().discard()
        for parameter in self.parameters:
            parameter.grad = None

    def whole(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A state with whole tensors, one gathered after another; kept at the leader alone."""
        found = {}
        for name, tensor in state.items():
            full = tensor.full_tensor().cpu() if isinstance(tensor, DTensor) else tensor
            if self._group.leads or not isinstance(tensor, DTensor):
                found[name] = full
        return found

    def sharded(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A state with whole tensors, as this rank keeps it."""
        weights = {f"model.{name}": t for name, t in self.part.state_dict(keep_vars=True).items()}
        found = {}
        for name, tensor in state.items():
            kind, _, rest = name.partition(".")
            index = rest.partition(".")[0]
            target = weights.get(name)
            if kind in ("optimizer", "waiting") and index.isdecimal():
                target = self.parameters[int(index)]
            if isinstance(target, DTensor) and target.shape == tensor.shape:
                # Every rank has the whole, and takes its own part of it.
                tensor = distribute_tensor(
                    tensor.to(self.device), self._mesh, target.placements, src_data_rank=None
                )
            found[name] = tensor
        return found

    def exceeds(self, limit: float) -> bool:
        """See `ServerHalf.exceeds`. Of the weights that this rank keeps."""
        parts = [_local(p.detach()) for p in self.parameters]
        return any(not float(part.abs().max()) <= limit for part in parts if part.numel())

    def _collect(self, output: Tensors, smashed: Tensors, gradient: Tensors | None, weight: float) -> Tensors:
        taken = floats(smashed)
        inputs = tensors_of(taken)
        # FSDP averages over ranks what is to be summed.
        scale = weight * self._group.world
        torch.autograd.backward(tensors_of(output), [torch.full_like(main_output(output), scale)])
        found = [torch.zeros_like(x) if x.grad is None else x.grad / scale for x in inputs]
        return like(taken, found)

    def _blank(self) -> Tensors:
        forms = self._forms
        if not isinstance(forms, dict):
            return torch.zeros(_BLANK_SAMPLES, *forms, device=self.device)
        return {
            name: torch.zeros(_BLANK_SAMPLES, *form.shape, dtype=form.dtype, device=self.device)
            for name, form in forms.items()
        }

    def _blank_pass(self) -> None:
        """A pass that adds nothing to gradients, nor to batch-norm statistics."""
        self.part.eval()
        try:
            output = main_output(super().run(received(self._blank())))
            torch.autograd.backward([output.sum()], [torch.zeros((), device=output.device)])
        finally:
            self.part.train()
        self._passes += 1


def _shard(part: Part, world: int) -> DeviceMesh:
    kind = next((p.device.type for p in part.parameters()), "cpu")
    # A group of its own: what FSDP exchanges never mixes with the words of ranks.
    mesh = DeviceMesh.from_group(torch.distributed.new_group(), kind)
    shared: set[int] = set()
    for module in part.called_modules():
        own = {id(p) for p in module.parameters()}
        if own and not own & shared:
            fully_shard(module, mesh=mesh)
        shared |= own
    fully_shard(part, mesh=mesh)
    return mesh


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
