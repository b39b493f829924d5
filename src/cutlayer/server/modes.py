"""One step between server and clients, one function a mode: how smashed data become gradients.

Each function takes the server's half, the messages of the step and the step, for which clients have begun.
It gives the step with those who took part, and their losses in client order. Afterwards every client has
its gradient frame and the server has applied its own gradients.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from cutlayer.errors import AbsentError
from cutlayer.protocol.plan import Step
from cutlayer.seeding import seeded, undisturbed
from cutlayer.seeds import derive
from cutlayer.server.step_io import BLAMEABLE, StepIO
from cutlayer.server.timeline import Timeline
from cutlayer.split.server import ServerHalf
from cutlayer.split.tensors import Tensors, apply, concatenate, divide_batch, divided, floats, multiplied
from cutlayer.split.weights import Weighting, mean_weights
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

    def mean(self, step: Step, values: Sequence[float]) -> float:
        """The mean of a value of each of the step's clients; NaN if nobody took part."""
        weights = mean_weights(step.samples, self.weighting)
        return sum(w * v for w, v in zip(weights, values, strict=True)) if weights else math.nan

    def timed(self) -> AbstractContextManager[None]:
        """The server computes inside."""
        return self.timeline.server("server")

    @contextmanager
    def seeded(self, step: Step, client: int) -> Iterator[None]:
        """The server computes inside; dropout and the like draw from where in the run it is."""
        seed = derive("server", self.seed, client, step.epoch, step.step)
        with seeded(seed, self.half.device), self.timed():
            yield

    @contextmanager
    def in_turn(self, step: Step, *, forward: bool = True) -> Iterator[None]:
        """The passes of this process' clients are inside. `forward`: theirs, and not the backward ones alone.

        Alone it has all clients. Where there are others, they may have their turns before and after.
        """
        yield

    def update(self, step: Step) -> None:
        """Apply what the server has collected."""
        with self.timed():
            self.half.update(step.lr)


ModeFunction = Callable[[ServerWork, StepIO, Step], tuple[Step, list[float]]]


def parallel(work: ServerWork, io: StepIO, step: Step) -> tuple[Step, list[float]]:
    """The paper's form (SplitFed V1): a pass for each client, server gradients averaged, one update."""
    losses: dict[int, float] = {}
    step = io.gather_batches(step)
    weights = dict(zip(step.clients, work.weights(step), strict=True))
    with work.in_turn(step):
        for client in step.clients:
            with suppress(AbsentError):
                losses[client] = _one(work, io, step, client, weights[client])
                io.collect(step, wait=False)
    out = [weights[client] for client in step.clients if client not in losses]
    step = io.remaining(step, losses)
    work.half.left_out([weights[client] for client in losses], out)
    work.update(step)
    return step, list(losses.values())


def sequential(work: ServerWork, io: StepIO, step: Step) -> tuple[Step, list[float]]:
    """SplitFed V2: the server updates after every client. In relay a step has one client."""
    losses: dict[int, float] = {}
    step = io.gather_batches(step)
    for client in step.clients:
        with suppress(AbsentError):
            losses[client] = _one(work, io, step, client, 1.0)
            work.update(step)
            io.collect(step, wait=False)
    return io.remaining(step, losses), list(losses.values())


def parallel_fused(work: ServerWork, io: StepIO, step: Step) -> tuple[Step, list[float]]:
    """As `parallel`, with all clients' batches in one pass."""
    step = io.gather_batches(step)
    received = {client: io.receive_batch(step, client) for client in step.clients}
    try:
        losses, gradients = _fused(work, step, received)
    except BLAMEABLE as error:
        # Which of them was it? Each alone tells.
        for client, (smashed, targets) in received.items():
            with suppress(AbsentError):
                _try_alone(work, io, client, smashed, targets)
        step = io.remaining(step, io.blamed_out(received))
        if len(step.clients) == len(received):
            raise error
        losses, gradients = _fused(work, step, received)
    _send_each(io, step, Gradient, gradients)
    work.update(step)
    return step, losses


def u_shaped(work: ServerWork, io: StepIO, step: Step) -> tuple[Step, list[float]]:
    """Two round trips: the loss is the client's. The losses come with the reports."""
    step = io.gather_tensors(step, Smashed)
    with work.in_turn(step):
        for client in step.clients:
            smashed = io.receive_tensor(step, client, Smashed)
            with suppress(AbsentError), io.judged(client, smashed, work.half):
                with work.seeded(step, client):
                    features = work.half.forward(client, smashed)
                io.send_down(step, client, Smashed, features)
    work.timeline.advance()
    step = io.gather_tensors(step, Gradient)
    with work.in_turn(step, forward=False):
        for client, weight in zip(step.clients, work.weights(step), strict=True):
            gradient = io.receive_tensor(step, client, Gradient)
            with undisturbed(), work.timed():
                back = work.half.backward(client, gradient, weight)
            io.send_down(step, client, Gradient, back)
    work.update(step)
    return step, []


def u_shaped_fused(work: ServerWork, io: StepIO, step: Step) -> tuple[Step, list[float]]:
    """As `u_shaped`, with all clients' batches in one pass."""
    step = begun = started = io.gather_tensors(step, Smashed)
    smashed = [io.receive_tensor(step, client, Smashed) for client in step.clients]
    try:
        features = _fused_features(work, step, smashed)
    except BLAMEABLE as error:
        for client, alone in zip(step.clients, smashed, strict=True):
            with suppress(AbsentError), io.judged(client, alone, work.half):
                work.half.forward(0, alone)
        step = begun = io.remaining(step, io.blamed_out(step.clients))
        kept = dict(zip(started.clients, smashed, strict=True))
        if len(step.clients) == len(kept):
            raise error
        features = _fused_features(work, step, [kept[client] for client in step.clients])
    _send_each(io, step, Smashed, features)
    work.timeline.advance()
    step = io.gather_tensors(step, Gradient)
    weights = work.weights(step)
    gradients = {client: io.receive_tensor(step, client, Gradient) for client in step.clients}
    with undisturbed(), work.timed():
        # The weights enter the server's gradients but not what goes back to the clients. Who was lost in
        # between has no gradient.
        scaled = {c: multiplied(g, w) for (c, g), w in zip(gradients.items(), weights, strict=True)}
        zeros = (apply(torch.zeros_like, floats(f)) for f in features)
        joined = concatenate([scaled.get(c, zero) for c, zero in zip(begun.clients, zeros, strict=True)])
        back = divide_batch(work.half.backward(0, joined), list(begun.samples))
    own = [b for c, b in zip(begun.clients, back, strict=True) if c in gradients]
    _send_each(io, step, Gradient, [divided(b, w) for b, w in zip(own, weights, strict=True)])
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
    with io.judged(client, smashed, work.half):
        with work.seeded(step, client):
            loss, gradient = work.half.train(smashed, targets, weight)
        io.send_down(step, client, Gradient, gradient)
    return loss


def _fused(
    work: ServerWork, step: Step, received: Mapping[int, tuple[Tensors, Tensor]]
) -> tuple[list[float], list[Tensors]]:
    batches = [received[client] for client in step.clients]
    with work.seeded(step, step.clients[0]):
        return work.half.train_fused(
            [smashed for smashed, _ in batches], [targets for _, targets in batches], work.weights(step)
        )


def _fused_features(work: ServerWork, step: Step, smashed: list[Tensors]) -> list[Tensors]:
    with work.seeded(step, step.clients[0]):
        return divide_batch(work.half.forward(0, concatenate(smashed)), list(step.samples))


def _try_alone(work: ServerWork, io: StepIO, client: int, smashed: Tensors, targets: Tensor) -> None:
    """Blame a client whose batch gives a loss that is not finite by itself. Nothing is kept of the pass."""
    with io.judged(client, smashed, work.half):
        work.half.train(smashed, targets)
    work.half.discard()


def _send_each(io: StepIO, step: Step, kind: type[Smashed | Gradient], tensors: list[Tensors]) -> None:
    for client, tensor in zip(step.clients, tensors, strict=True):
        io.send_down(step, client, kind, tensor)
