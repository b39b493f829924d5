"""Who trains at which step, with which learning rate, and what is shared after it: pure functions.

An epoch shows every client its own samples once. In all modes but relay a step is one batch of every
client, and clients whose batches have run out sit out the epoch's remaining steps: means are then over
those that take part. In relay a step is one batch of one client, and clients take their turns of one step
(`sync = step`), K steps, or all their batches (`sync = epoch`); each hands the weights on to the next.

With `clients_per_step`, only a sample of the clients takes part. It is drawn anew when clients have shared
what they learned: a round is one step, K steps or an epoch, as `sync` says.

In async a step is one update of the server, after K arrivals. Each client goes through its own samples at its
own pace, and an epoch is as many arrivals as all clients together have batches.
"""

import itertools
import math
from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from cutlayer.data.sampler import steps_per_epoch
from cutlayer.protocol.client_sampling import sample_clients
from cutlayer.wire.messages.types import Share

Mode = Literal["parallel", "sequential", "relay", "u-shaped", "async"]
Sync = Literal["step", "epoch"] | int


@dataclass(frozen=True)
class LearningRate:
    """A schedule. The rate changes between epochs; in the linear warm-up, and under `linear`, at each step.

    `linear` falls to nearly nothing at the last step. With a warm-up it is a triangle: a one-cycle schedule.
    """

    lr: float
    epochs: int
    schedule: Literal["constant", "cosine", "steps", "every", "linear"] = "constant"
    milestones: tuple[int, ...] = ()
    gamma: float = 0.1
    period: int = 30
    warmup_epochs: float = 0

    def at(self, epoch: int, step: int, steps_per_epoch: int) -> float:
        """The learning rate of a step."""
        warmup = self.warmup_epochs * steps_per_epoch
        done = epoch * steps_per_epoch + step + 1
        rise = done / warmup if done <= warmup else 1.0
        if self.schedule == "linear":
            # One more than there are, so that the last step still moves the weights.
            end = self.epochs * steps_per_epoch + 1
            return self.lr * (rise if done <= warmup else (end - done) / (end - warmup))
        return rise * self.lr * self._factor(epoch)

    def _factor(self, epoch: int) -> float:
        if self.schedule == "cosine":
            return 0.5 * (1 + math.cos(math.pi * epoch / self.epochs))
        if self.schedule == "steps":
            return float(self.gamma ** sum(epoch >= milestone for milestone in self.milestones))
        if self.schedule == "every":
            return float(self.gamma ** (epoch // self.period))
        return 1.0


def when_extended(schedule: str, before: int, now: int) -> str:
    """What becomes of the learning rate of a run that is continued to more epochs."""
    rate = {
        "constant": "stays as it is",
        "cosine": f"follows the cosine over {now} epochs from here on, and so begins above where it ended",
    }
    return (
        f"the run is extended from {before} to {now} epochs; the learning rate "
        f"{rate.get(schedule, 'goes on as its schedule says')}"
    )


@dataclass(frozen=True)
class Place:
    """Where in the run something happens, and the learning rate there."""

    number: int
    """The step, from 0, over the whole run."""
    epoch: int
    step: int
    """From 0, in the epoch; in relay, the client's own count."""
    lr: float


@dataclass(frozen=True)
class Step(Place):
    """One step of the run."""

    clients: tuple[int, ...]
    samples: tuple[int, ...]
    """The batch size of each of these clients."""
    share: Share
    last: bool
    """Whether the epoch ends with it."""
    heir: int | None = None
    """Relay: who gets the weights."""

    def only(self, clients: Collection[int]) -> "Step":
        """The step with only those of its clients; perhaps with none."""
        kept = [(c, n) for c, n in zip(self.clients, self.samples, strict=True) if c in clients]
        return replace(self, clients=tuple(c for c, _ in kept), samples=tuple(n for _, n in kept))


@dataclass(frozen=True)
class _Relayed:
    """The client of each step of an epoch, and that client's own count of steps, in eight bytes a step."""

    clients: "array[int]" = field(default_factory=lambda: array("I"))
    steps: "array[int]" = field(default_factory=lambda: array("I"))


class Plan:
    """All steps of a run. `samples` says how many each client has."""

    def __init__(
        self,
        samples: Sequence[int],
        *,
        batch_size: int,
        epochs: int,
        lr: LearningRate,
        mode: Mode = "parallel",
        sync: Sync = "step",
        drop_last: bool = False,
        differences: bool = False,
        clients_per_step: int = 0,
        seed: int = 0,
        arrivals: int = 1,
    ) -> None:
        """`differences`: weights are shared as differences to their last mean.

        `clients_per_step`: so many clients take part at most, drawn with the `seed` of the run; 0 for all.
        `arrivals`: how many of them make an update in mode async.
        """
        self.samples = list(samples)
        self.mode = mode
        self.sync = sync
        self.epochs = epochs
        self.relay = mode == "relay"
        self.batches = [steps_per_epoch(count, batch_size, drop_last) for count in samples]
        self.clients_per_step = clients_per_step
        self.batch_size = batch_size
        self._seed = seed
        self._drop_last = drop_last
        self._lr = lr
        self._weights = Share.DIFFERENCES if differences else Share.WEIGHTS
        self._relayed = self._relay_order() if self.relay else _Relayed()
        self.arrivals = arrivals
        if mode == "async":
            self.steps_per_epoch = -(-sum(self.batches) // arrivals)
        else:
            self.steps_per_epoch = len(self._relayed.clients) if self.relay else max(self.batches)
        self.total = self.steps_per_epoch * epochs

    def round(self, number: int) -> tuple[int, int]:
        """The round that a step belongs to, and the number of the round's first step."""
        length = 1 if self.sync == "step" else self.steps_per_epoch if self.sync == "epoch" else self.sync
        return number // length, number - number % length

    def sampled(self, number: int, among: Collection[int] | None = None) -> tuple[int, ...]:
        """The clients that take part in the round which begins with this step: of all, or of those given."""
        step = number % self.steps_per_epoch
        known = range(len(self.samples)) if among is None else among
        able = [client for client in known if step < self.batches[client]]
        return sample_clients(self._seed, self.round(number)[0], able, self.clients_per_step)

    def join(self, client: int, samples: int) -> None:
        """A client that was not there when the run began has so many samples. Epochs stay as they are."""
        self.samples[client] = samples
        self.batches[client] = min(
            self.steps_per_epoch, steps_per_epoch(samples, self.batch_size, self._drop_last)
        )

    def at(self, number: int, taking_part: Collection[int] | None = None) -> Step:
        """The step of that number. `taking_part`: whom the round has, where not all clients take part."""
        epoch, step = divmod(number, self.steps_per_epoch)
        last = step == self.steps_per_epoch - 1
        lr = self._lr.at(epoch, step, self.steps_per_epoch)
        if self.relay:
            client, own = self._relayed.clients[step], self._relayed.steps[step]
            heir = self._relayed.clients[0 if last else step + 1]
            share = Share.NOTHING if heir == client else Share.WEIGHTS
            sizes = (self._size(client, own),)
            return Step(number, epoch, own, lr, (client,), sizes, share, last, heir)
        if self.mode == "async":
            # Who takes part is known when they arrive.
            return Step(number, epoch, step, lr, (), (), Share.UPDATE, last)
        if taking_part is None and self.clients_per_step:
            taking_part = self.sampled(self.round(number)[1])
        everybody = range(len(self.samples)) if taking_part is None else taking_part
        clients = tuple(c for c in everybody if step < self.batches[c])
        samples = tuple(self._size(client, step) for client in clients)
        return Step(number, epoch, step, lr, clients, samples, self._share(number, last), last)

    def own_batch(self, client: int, count: int, update: Step) -> Step:
        """Async: the batch of a client that has been given `count` before, begun before that update."""
        epoch, step = divmod(count, self.batches[client])
        samples = (self._size(client, step),)
        return Step(update.number, epoch, step, update.lr, (client,), samples, update.share, False)

    def _share(self, number: int, last: bool) -> Share:
        if len(self.samples) == 1 and not self.clients_per_step:
            return Share.NOTHING  # there is nobody to share with
        if self.sync == "step":
            return Share.UPDATE if self.clients_per_step else Share.GRADIENTS
        due = last if self.sync == "epoch" else (number + 1) % self.sync == 0
        return self._weights if due else Share.NOTHING

    def _size(self, client: int, step: int) -> int:
        return min(self.batch_size, self.samples[client] - step * self.batch_size)

    def _relay_order(self) -> "_Relayed":
        length = max(self.batches) if self.sync == "epoch" else 1 if self.sync == "step" else self.sync
        found = _Relayed()
        for begin in range(0, max(self.batches), length):
            for client, batches in enumerate(self.batches):
                own = range(begin, min(begin + length, batches))
                found.clients.extend(itertools.repeat(client, len(own)))
                found.steps.extend(own)
        return found
