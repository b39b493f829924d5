"""Evaluation: the test set through both halves and the codec, batch-norm statistics averaged before.

The test set stays with a client, the evaluator. What clients hold is averaged first (all of it if their
weights differ, only batch-norm statistics if they do not) and sent to the evaluator, which keeps it apart
from its training state. The traffic is counted on a meter of its own.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from time import perf_counter
from typing import Any

import torch

from cutlayer.errors import AbsentError
from cutlayer.server.results import Evaluation
from cutlayer.server.split_server import SplitServer
from cutlayer.split.tensors import Tensors, has_integers, main_output
from cutlayer.wire.messages.types import Evaluate, Smashed


def evaluate(
    server: SplitServer, batch: int = 500, note: Callable[[str], None] = lambda text: None
) -> Evaluation | None:
    """Evaluate the model as it is now on a client's test set; None, and a note, if that cannot be."""
    while True:
        found = server.clients.evaluator()
        if found is None:
            note("no client that has a test set is there: not evaluated")
            return None
        try:
            return evaluate_on(server, *found, batch)
        except AbsentError as error:
            # It is out. Another one that has a test set takes over.
            note(f"the evaluation failed: {error}")
            if server.clients.evaluator() == found:
                return None


def evaluate_on(server: SplitServer, evaluator: int, samples: int, batch: int = 500) -> Evaluation:
    """Evaluate the model as it is now on the `samples` test samples of one client."""
    began = perf_counter()
    server.half.part.eval()
    try:
        server.participation.quiet(evaluator)
        with server.transport.meter.apart() as meter:
            server.average_clients().deliver_exact(server.number, evaluator)
            totals = torch.zeros(len(server.task.sum_names), dtype=torch.float64)
            for number, first in enumerate(range(0, samples, batch)):
                last = min(samples, first + batch)
                server.transport.send(evaluator, Evaluate(number, first, last))
                totals += torch.tensor(_batch(server, evaluator, number, last - first), dtype=torch.float64)
    finally:
        server.half.part.train()
    metrics = server.task.results(totals.tolist(), samples)
    loss = metrics.pop("loss")
    return Evaluation(samples, loss, metrics, meter.snapshot(), perf_counter() - began)


@torch.no_grad()
def _batch(server: SplitServer, evaluator: int, number: int, samples: int) -> Sequence[float]:
    """What a batch adds to the sums of the task."""
    if server.plan.mode == "u-shaped":
        smashed, _ = server.boundary.tensor(evaluator, number, Smashed, samples)
        frame = server.codecs.encode_evaluation(server.codecs.down, _run(server, evaluator, smashed))
        server.transport.send(evaluator, Smashed(number, frame))
        return server.boundary.scores(evaluator, number, samples)
    smashed, targets, _ = server.boundary.batch(evaluator, number, samples)
    outputs = main_output(_run(server, evaluator, smashed))
    return server.task.sums(outputs, targets.to(outputs.device))


def _run(server: SplitServer, evaluator: int, smashed: Tensors) -> Any:
    # Integers may be indices that the model cannot use.
    with server.boundary.blame(evaluator) if has_integers(smashed) else nullcontext():
        return server.half.run(smashed)
