"""Gradient bias while training: the next step's gradients, with and without compression, on copies.

Which batch a client takes, how it is augmented and what a random codec draws are functions of the place in
the run, so the step can be looked at before it is made. Nothing that training uses is changed.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from cutlayer.analysis import Probe, compare_gradients, mean_gradient
from cutlayer.seeds import derive
from cutlayer.training.local_run import LocalRun


class BiasTracker:
    """Measures each so many steps, from the first one on; never if `every` is 0."""

    def __init__(self, run: LocalRun, every: int) -> None:
        self._run = run
        self._every = every

    def __call__(self) -> dict[str, Any]:
        """What compression will do to the gradients of the next step, where that is to be recorded."""
        due = self._every and self._run.number % self._every == 0
        return {"bias": track_bias(self._run)} if due else {}


def track_bias(run: LocalRun) -> dict[str, Any]:
    """Metrics of the next step, of the gradients' means over its clients, for its record.

    `client` and `server` hold those of each side, and the values beside them those of both together.
    The inner product is with the step's own true gradient, which stands for the full one. In the modes
    where the server or the clients update within a step, all gradients are those at its beginning.
    """
    step = run.server.plan.at(run.number)
    true, compressed = [], []
    for number in step.clients:
        client = run.clients.clients[number]
        codecs, place = client.codecs, (number, step.epoch, step.step)
        inputs, targets = client.batch(step.epoch, step.step)
        client.half.hang()
        head, *tail = client.half.model.parts
        seed = derive("track", run.config.seed, *place)
        parts = (head, run.server.half.part, *tail)
        probe = Probe(parts, inputs, targets, loss=client.task.loss, seed=seed >> 2)
        true.append(probe.gradient())
        compressed.append(probe.gradient(codecs.up, codecs.down, seed=seed >> 2))
    g, h = mean_gradient(true), mean_gradient(compressed)
    sides = {part: dataclasses.asdict(compare_gradients(g, h, part=part)) for part in ("client", "server")}
    return {"compression_error": h.error, **dataclasses.asdict(compare_gradients(g, h)), **sides}
