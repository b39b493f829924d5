"""Gradient bias while training: the next step's gradients, with and without compression, on copies.

Which batch a client takes, how it is augmented and what a random codec draws are functions of the place in
the run, so the step can be looked at before it is made. Nothing that training uses is changed.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch

from cutlayer.analysis import Probe, compare_gradients, mean_gradient
from cutlayer.data.seeds import derive

if TYPE_CHECKING:
    from cutlayer.training.session import Session


def track_bias(session: Session) -> dict[str, Any]:
    """Metrics of the next step, of the gradients' means over its clients, for its record.

    `client` and `server` hold those of each side, and the values beside them those of both together.
    The inner product is with the step's own true gradient, which stands for the full one. In the modes
    where the server or the clients update within a step, all gradients are those at its beginning.
    """
    step = session.plan.at(session.number)
    true, compressed = [], []
    with torch.random.fork_rng(devices=[]):
        for client in step.clients:
            worker = session.workers[client]
            crossings, place = worker.crossings, (client, step.epoch, step.step)
            images, labels = worker.batch(step.epoch, step.step)
            worker.half.hang()
            head, *tail = worker.half.model.parts
            seed = derive("track", session.config.seed, *place)
            probe = Probe((head, session.server.part, *tail), images, labels, seed=seed >> 2)
            true.append(probe.gradient())
            compressed.append(probe.gradient(crossings.up, crossings.down, seed=seed >> 2))
    g, h = mean_gradient(true), mean_gradient(compressed)
    sides = {part: dataclasses.asdict(compare_gradients(g, h, part=part)) for part in ("client", "server")}
    return {"compression_error": h.error, **dataclasses.asdict(compare_gradients(g, h)), **sides}
