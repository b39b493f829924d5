"""One step between server and clients, one function a mode: how smashed data become gradients.

Each function takes the server's half, the messages of the step and the step, for which clients have begun.
It gives the step with those who took part, and their losses in client order. Afterwards every client has
its gradient frame and the server has applied its own gradients.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from cutlayer.data.seeds import derive
from cutlayer.protocol.plan import Step
from cutlayer.server.step_io import StepIO
from cutlayer.server.timeline import Timeline
from cutlayer.split.mean import Weighting, mean_weights
from cutlayer.split.server import ServerHalf
from cutlayer.wire.messages.types import Gradient, Smashed


@dataclass(frozen=True)
class ServerWork:
    """The server's half and what its work in a step depends on."""

    half: ServerHalf
    timeline: Timeline
    weighting: Weighting
    seed: int

    def weights(self, step: Step) -> list[float]:
        """The weight of each of the step's clients in a mean."""
        return mean_weights(step.samples, self.weighting)

    def timed(self) -> AbstractContextManager[None]:
        """The server computes inside."""
        return self.timeline.server("server")

    @contextmanager
    def seeded(self, step: Step, client: int) -> Iterator[None]:
        """The server computes inside; dropout and the like draw from where in the run it is."""
        torch.default_generator.manual_seed(derive("server", self.seed, client, step.epoch, step.step))
        with self.timed():
            yield

    def update(self, step: Step) -> None:
        """Apply what the server has collected."""
        with self.timed():
            self.half.update(step.lr)


ModeFunction = Callable[[ServerWork, StepIO, Step], tuple[Step, list[float]]]


def parallel(work: ServerWork, io: StepIO, step: Step) -> tuple[Step, list[float]]:
    """The paper's form (SplitFed V1): a pass for each client, server gradients averaged, one update."""
    losses = []
    step = io.gather_batches(step)
    for client, weight in zip(step.clients, work.weights(step), strict=True):
        losses.append(_one(work, io, step, client, weight))
        io.collect(step, wait=False)
    work.update(step)
    return step, losses


def sequential(work: ServerWork, io: StepIO, step: Step) -> tuple[Step, list[float]]:
    """SplitFed V2: the server updates after every client. In relay a step has one client."""
    losses = []
    step = io.gather_batches(step)
    for client in step.clients:
        losses.append(_one(work, io, step, client, 1.0))
        work.update(step)
        io.collect(step, wait=False)
    return step, losses


def parallel_fused(work: ServerWork, io: StepIO, step: Step) -> tuple[Step, list[float]]:
    """As `parallel`, with all clients' batches in one pass."""
    step = io.gather_batches(step)
    received = [io.receive_batch(step, client) for client in step.clients]
    weights = work.weights(step)
    with work.seeded(step, step.clients[0]):
        losses, gradients = work.half.train_fused(
            [smashed for smashed, _ in received], [targets for _, targets in received], weights
        )
    _send_each(io, step, Gradient, gradients)
    work.update(step)
    return step, losses


def u_shaped(work: ServerWork, io: StepIO, step: Step) -> tuple[Step, list[float]]:
    """Two round trips: the loss is the client's. The losses come with the reports."""
    step = io.gather_tensors(step, Smashed)
    for client in step.clients:
        smashed = io.receive_tensor(step, client, Smashed)
        with work.seeded(step, client):
            features = work.half.forward(client, smashed)
        io.send_down(step, client, Smashed, features)
    work.timeline.advance()
    step = io.gather_tensors(step, Gradient)
    for client, weight in zip(step.clients, work.weights(step), strict=True):
        gradient = io.receive_tensor(step, client, Gradient)
        with work.timed():
            back = work.half.backward(client, gradient, weight)
        io.send_down(step, client, Gradient, back)
    work.update(step)
    return step, []


def u_shaped_fused(work: ServerWork, io: StepIO, step: Step) -> tuple[Step, list[float]]:
    """As `u_shaped`, with all clients' batches in one pass."""
    step = begun = io.gather_tensors(step, Smashed)
    smashed = [io.receive_tensor(step, client, Smashed) for client in step.clients]
    with work.seeded(step, step.clients[0]):
        features = torch.split(work.half.forward(0, torch.cat(smashed)), list(step.samples))
    _send_each(io, step, Smashed, list(features))
    work.timeline.advance()
    step = io.gather_tensors(step, Gradient)
    weights = work.weights(step)
    gradients = {client: io.receive_tensor(step, client, Gradient) for client in step.clients}
    with work.timed():
        # The weights enter the server's gradients but not what goes back to the clients. Who was lost in
        # between has no gradient.
        scaled = {c: g * w for (c, g), w in zip(gradients.items(), weights, strict=True)}
        zeros = (torch.zeros_like(f) for f in features)
        joined = torch.cat([scaled.get(c, zero) for c, zero in zip(begun.clients, zeros, strict=True)])
        back = torch.split(work.half.backward(0, joined), list(begun.samples))
    kept = [b for c, b in zip(begun.clients, back, strict=True) if c in gradients]
    _send_each(io, step, Gradient, [b / w for b, w in zip(kept, weights, strict=True)])
    work.update(step)
    return step, []


#: The function of each mode and server batching.
MODES: dict[tuple[str, str], ModeFunction] = {
    ("parallel", "per_client"): parallel,
    ("parallel", "fused"): parallel_fused,
    ("sequential", "per_client"): sequential,
    ("relay", "per_client"): sequential,
    ("u-shaped", "per_client"): u_shaped,
    ("u-shaped", "fused"): u_shaped_fused,
}


def _one(work: ServerWork, io: StepIO, step: Step, client: int, weight: float) -> float:
    smashed, targets = io.receive_batch(step, client)
    with work.seeded(step, client):
        loss, gradient = work.half.train(smashed, targets, weight)
    io.send_down(step, client, Gradient, gradient)
    return loss


def _send_each(io: StepIO, step: Step, kind: type[Smashed | Gradient], tensors: list[Tensor]) -> None:
    for client, tensor in zip(step.clients, tensors, strict=True):
        io.send_down(step, client, kind, tensor)
