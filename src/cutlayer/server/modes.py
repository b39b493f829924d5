"""One step between server and clients, in each of its forms: how smashed data become gradients.

Each function takes the loop and a step for which the clients have their turns, and gives the clients'
losses in client order. Afterwards every client has its gradient frame and the server has collected, or
already applied, its own gradients.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cutlayer.protocol.plan import Step
from cutlayer.split.aggregate import shares
from cutlayer.wire.messages.types import Gradient, Smashed

if TYPE_CHECKING:
    from cutlayer.server.split_server import Loop

Exchange = Callable[["Loop", Step], tuple[Step, list[float]]]


def per_client(loop: "Loop", step: Step) -> tuple[Step, list[float]]:
    """The paper's form: a pass for each client, server gradients averaged, one update."""
    losses = []
    step = loop.dialogue.gather_batches(step)
    for client, weight in zip(step.clients, shares(step.samples, loop.weighting), strict=True):
        losses.append(_one(loop, step, client, weight))
        loop.turns.collect(step, wait=False)
    loop.update_server(step)
    return step, losses


def one_after_another(loop: "Loop", step: Step) -> tuple[Step, list[float]]:
    """The server updates after every client."""
    losses = []
    step = loop.dialogue.gather_batches(step)
    for client in step.clients:
        losses.append(_one(loop, step, client, 1.0))
        loop.update_server(step)
        loop.turns.collect(step, wait=False)
    return step, losses


def fused(loop: "Loop", step: Step) -> tuple[Step, list[float]]:
    """All clients' batches in one pass."""
    step = loop.dialogue.gather_batches(step)
    received = [loop.dialogue.receive_batch(step, client) for client in step.clients]
    weights = shares(step.samples, loop.weighting)
    loop.seed_server(step, step.clients[0])
    with loop.timeline.server("server"):
        losses, gradients = loop.server.train_fused(
            [smashed for smashed, _ in received], [labels for _, labels in received], weights
        )
    for client, gradient in zip(step.clients, gradients, strict=True):
        loop.dialogue.send_down(step, client, Gradient, gradient)
    loop.update_server(step)
    return step, losses


def u_shaped(loop: "Loop", step: Step) -> tuple[Step, list[float]]:
    """Two round trips: the loss is the client's. The losses come with the reports."""
    step = loop.dialogue.gather_tensors(step, Smashed)
    for client in step.clients:
        smashed = loop.dialogue.receive_tensor(step, client, Smashed)
        loop.seed_server(step, client)
        with loop.timeline.server("server"):
            features = loop.server.forward(client, smashed)
        loop.dialogue.send_down(step, client, Smashed, features)
    loop.timeline.advance()
    step = loop.dialogue.gather_tensors(step, Gradient)
    for client, weight in zip(step.clients, shares(step.samples, loop.weighting), strict=True):
        gradient = loop.dialogue.receive_tensor(step, client, Gradient)
        with loop.timeline.server("server"):
            back = loop.server.backward(client, gradient, weight)
        loop.dialogue.send_down(step, client, Gradient, back)
    loop.update_server(step)
    return step, []


def u_shaped_fused(loop: "Loop", step: Step) -> tuple[Step, list[float]]:
    """As `u_shaped`, with all clients' batches in one pass."""
    step = begun = loop.dialogue.gather_tensors(step, Smashed)
    smashed = [loop.dialogue.receive_tensor(step, client, Smashed) for client in step.clients]
    loop.seed_server(step, step.clients[0])
    with loop.timeline.server("server"):
        features = torch.split(loop.server.forward(0, torch.cat(smashed)), list(step.samples))
    _to_each(loop, step, Smashed, list(features))
    loop.timeline.advance()
    step = loop.dialogue.gather_tensors(step, Gradient)
    weights = shares(step.samples, loop.weighting)
    gradients = {client: loop.dialogue.receive_tensor(step, client, Gradient) for client in step.clients}
    with loop.timeline.server("server"):
        # The weights enter the server's gradients but not what goes back to the clients. Who was lost in
        # between has no gradient.
        scaled = {c: g * w for (c, g), w in zip(gradients.items(), weights, strict=True)}
        zeros = (torch.zeros_like(f) for f in features)
        joined = torch.cat([scaled.get(c, zero) for c, zero in zip(begun.clients, zeros, strict=True)])
        back = torch.split(loop.server.backward(0, joined), list(begun.samples))
    kept = [b for c, b in zip(begun.clients, back, strict=True) if c in gradients]
    _to_each(loop, step, Gradient, [b / w for b, w in zip(kept, weights, strict=True)])
    loop.update_server(step)
    return step, []


#: The exchange of each mode and server batching.
EXCHANGES: dict[tuple[str, str], Exchange] = {
    ("parallel", "per_client"): per_client,
    ("parallel", "fused"): fused,
    ("sequential", "per_client"): one_after_another,
    ("relay", "per_client"): one_after_another,
    ("u-shaped", "per_client"): u_shaped,
    ("u-shaped", "fused"): u_shaped_fused,
}


def _one(loop: "Loop", step: Step, client: int, weight: float) -> float:
    smashed, labels = loop.dialogue.receive_batch(step, client)
    loop.seed_server(step, client)
    with loop.timeline.server("server"):
        loss, gradient = loop.server.train(smashed, labels, weight)
    loop.dialogue.send_down(step, client, Gradient, gradient)
    return loss


def _to_each(loop: "Loop", step: Step, kind: type[Smashed | Gradient], tensors: list[Tensor]) -> None:
    for client, tensor in zip(step.clients, tensors, strict=True):
        loop.dialogue.send_down(step, client, kind, tensor)
