"""Evaluation: the test set through both halves and the codec, batch-norm statistics averaged before.

The test set stays with a client, the evaluator. What clients hold is averaged first (all of it if their
weights differ, only batch-norm statistics if they do not) and sent to the evaluator, which keeps it apart
from its training state. The traffic is counted on a meter of its own.
"""

from time import perf_counter

import torch

from cutlayer.aggregation.at_server import RunningMean
from cutlayer.client.evaluator import count
from cutlayer.errors import MessageError
from cutlayer.server.results import Scored
from cutlayer.server.split_server import Loop
from cutlayer.wire.messages import labels as packing
from cutlayer.wire.messages.types import Ask, Evaluate, Labels, Scores, Share, Smashed, SyncUp
from cutlayer.wire.transport import apart


def evaluate(loop: Loop, samples: int, batch: int = 500, evaluator: int = 0) -> Scored:
    """Evaluate the model as it is now on `samples` test samples."""
    began = perf_counter()
    loop.server.part.eval()
    try:
        with apart(loop.transport) as meter:
            loop.aggregator.deliver_for_evaluation(*current(loop), evaluator, loop.transport)
            totals = torch.zeros(3, dtype=torch.float64)
            for number, first in enumerate(range(0, samples, batch)):
                last = min(samples, first + batch)
                loop.transport.send(evaluator, Evaluate(number, first, last))
                totals += torch.tensor(_batch(loop, evaluator, number), dtype=torch.float64)
    finally:
        loop.server.part.train()
    loss, top1, top5 = (totals / samples).tolist()
    return Scored(samples, loss, top1, top5, meter.snapshot(), perf_counter() - began)


def current(loop: Loop) -> tuple[RunningMean, int]:
    """The clients' model as it is now: the mean of what they hold, and the number of steps behind it."""
    plan = loop.plan
    if plan.relay:
        clients, share = [loop.holder], Share.WEIGHTS
    else:
        clients = list(loop.transport.members())
        share = Share.BUFFERS if plan.train.sync == "step" else Share.WEIGHTS
    loop.transport.announce(clients, Ask(loop.number, share))
    clients = list(loop.transport.present(clients, 1))
    mean = loop.aggregator.running([plan.samples[c] for c in clients])
    for client in clients:
        message = loop.transport.receive(client)
        if not isinstance(message, loop.aggregator.shared):
            raise MessageError(f"client {client} answered {type(message).__name__} when asked to share")
        if isinstance(message, SyncUp) and message.share != share:
            raise MessageError(f"client {client} shared {message.share.name} instead of {share.name}")
        mean.add(message, client)
    return mean, loop.number


@torch.no_grad()
def _batch(loop: Loop, evaluator: int, number: int) -> tuple[float, int, int]:
    smashed = loop.transport.receive(evaluator)
    if not isinstance(smashed, Smashed):
        raise MessageError(f"the evaluator sent a {type(smashed).__name__} instead of smashed data")
    output = loop.server.part(loop.crossings.decode(smashed.body))
    if loop.plan.train.mode == "u-shaped":
        frame = loop.crossings.down_evaluation.encode(output)
        loop.transport.send(evaluator, Smashed(number, frame))
        scores = loop.transport.receive(evaluator)
        if not isinstance(scores, Scores):
            raise MessageError(f"the evaluator sent a {type(scores).__name__} instead of scores")
        return scores.loss, scores.top1, scores.top5
    labels = loop.transport.receive(evaluator)
    if not isinstance(labels, Labels):
        raise MessageError(f"the evaluator sent a {type(labels).__name__} instead of labels")
    unpacked = torch.from_numpy(packing.unpack(labels.body, labels.count, loop.classes))
    return count(output, unpacked)
