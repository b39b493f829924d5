"""Who trains at which step, and what is shared after it: a pure function of the settings.

An epoch shows every client its own samples once. In all modes but relay a step is one batch of every
client, and clients whose batches have run out sit out the epoch's remaining steps: means are then over
those that take part. In relay a step is one batch of one client, and clients take turns of one step
(`sync = step`), K steps, or all their batches (`sync = epoch`); each hands the weights on to the next.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from cutlayer.config.schema import TrainConfig
from cutlayer.data.sampler import steps_per_epoch
from cutlayer.protocol.lr_schedule import learning_rate
from cutlayer.wire.messages.types import Share


@dataclass(frozen=True)
class Step:
    """One step of the run."""

    number: int
    """From 0, over the whole run."""
    epoch: int
    step: int
    """From 0, in the epoch; in relay, the client's own count."""
    clients: tuple[int, ...]
    samples: tuple[int, ...]
    """The batch size of each of these clients."""
    lr: float
    share: Share
    last: bool
    """Whether the epoch ends with it."""
    heir: int | None = None
    """Relay: who gets the weights."""

    def only(self, clients: Collection[int]) -> "Step":
        """The step with only those of its clients; perhaps with none."""
        kept = [(c, n) for c, n in zip(self.clients, self.samples, strict=True) if c in clients]
        return replace(self, clients=tuple(c for c, _ in kept), samples=tuple(n for _, n in kept))


class Plan:
    """All steps of a run. `samples` says how many each client has."""

    def __init__(self, train: TrainConfig, samples: Sequence[int]) -> None:
        self.train = train
        self.samples = tuple(samples)
        size, drop = train.batch_size, train.drop_last
        self.batches = [steps_per_epoch(count, size, drop) for count in samples]
        self.relay = train.mode == "relay"
        self._turns = self._relay_turns() if self.relay else []
        self.steps_per_epoch = len(self._turns) if self.relay else max(self.batches)
        self.total = self.steps_per_epoch * train.epochs

    def at(self, number: int) -> Step:
        """The step of that number."""
        epoch, step = divmod(number, self.steps_per_epoch)
        last = step == self.steps_per_epoch - 1
        lr = learning_rate(self.train, epoch, step, self.steps_per_epoch)
        if self.relay:
            client, own = self._turns[step]
            heir = self._turns[0 if last else step + 1][0]
            share = Share.NOTHING if heir == client else Share.WEIGHTS
            sizes = (self._size(client, own),)
            return Step(number, epoch, own, (client,), sizes, lr, share, last, heir)
        clients = tuple(c for c, batches in enumerate(self.batches) if step < batches)
        samples = tuple(self._size(client, step) for client in clients)
        return Step(number, epoch, step, clients, samples, lr, self._share(number, last), last)

    def _share(self, number: int, last: bool) -> Share:
        sync = self.train.sync
        if len(self.samples) == 1:
            return Share.NOTHING  # there is nobody to share with
        if sync == "step":
            return Share.GRADIENTS
        due = last if sync == "epoch" else (number + 1) % sync == 0
        return Share.WEIGHTS if due else Share.NOTHING

    def _size(self, client: int, step: int) -> int:
        return min(self.train.batch_size, self.samples[client] - step * self.train.batch_size)

    def _relay_turns(self) -> list[tuple[int, int]]:
        sync = self.train.sync
        length = max(self.batches) if sync == "epoch" else 1 if sync == "step" else sync
        return [
            (client, step)
            for begin in range(0, max(self.batches), length)
            for client, batches in enumerate(self.batches)
            for step in range(begin, min(begin + length, batches))
        ]
