"""A run: the split server and its clients, stepped, evaluated, saved and restored as one.

The same for clients in this process and clients elsewhere; the pool of clients is the only difference.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from cutlayer.errors import AbsentError
from cutlayer.server.client_pool import ClientPool
from cutlayer.server.evaluation import evaluate
from cutlayer.server.results import Evaluation, StepResult
from cutlayer.server.split_server import SplitServer
from cutlayer.wire.meter import Meter


class Run:
    """A split server, and where its clients come from.

    >>> run = local_run(config)
    >>> while not run.done:
    ...     result = run.step()
    """

    def __init__(
        self,
        server: SplitServer,
        clients: ClientPool,
        *,
        evaluation_batch: int = 500,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.server = server
        self.clients = clients
        self._evaluation_batch = evaluation_batch
        self._note = note

    @property
    def number(self) -> int:
        """How many steps are complete."""
        return self.server.number

    @property
    def done(self) -> bool:
        """Whether all steps are complete."""
        return self.server.done

    @property
    def meter(self) -> Meter:
        """The bytes of training."""
        return self.server.transport.meter

    def step(self) -> StepResult:
        """Run the next step, with everybody who is there."""
        self.clients.before_step(self.number)
        return self.server.step()

    def evaluate(self) -> Evaluation | None:
        """The model as it is now, on a client's test set, with the codecs in place; None if none is there."""
        found = self.clients.evaluator()
        if found is None:
            return None
        try:
            return evaluate(self.server, *found, self._evaluation_batch)
        except AbsentError as error:
            self._note(f"not evaluated: {error}")
            return None

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything: tensors by name, and the rest as plain JSON."""
        tensors, state = self.server.state()
        return tensors | self.clients.state(self.number), state

    def restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Continue exactly where `state` was taken."""
        self.clients.restore(tensors, int(state["number"]))
        self.server.restore(tensors, state)
