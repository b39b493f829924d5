"""What the server keeps of each client's requests: open batches, and the answers that it gave last."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from cutlayer.remote.engine import OpenBatch


@dataclass
class ClientRequests:
    """One client's. A client's new process begins a new session, and its numbers begin anew."""

    most: int
    """Batches between forward and backward, and answers that may be asked for again."""
    session: int = 0
    open: OrderedDict[int, OpenBatch] = field(default_factory=OrderedDict)
    done: OrderedDict[int, bytes] = field(default_factory=OrderedDict)
    """The bodies of the answers to its last Backward messages, by their numbers."""

    def begin(self, session: int) -> None:
        """A request of that session has come."""
        if session != self.session:
            self.session = session
            self.open.clear()
            self.done.clear()

    def keep(self, number: int, batch: OpenBatch) -> None:
        """A batch awaits its backward. The oldest goes if there are too many."""
        self.open[number] = batch
        if len(self.open) > self.most:
            self.open.popitem(last=False)

    def finish(self, number: int, answer: bytes) -> None:
        """A batch has reached the weights."""
        self.done[number] = answer
        if len(self.done) > self.most:
            self.done.popitem(last=False)
