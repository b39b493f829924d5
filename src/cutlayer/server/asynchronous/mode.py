"""Mode async: clients work at their own pace, and the server updates both halves after K arrivals (FedBuff).

A client gets the weights of its half, computes on a batch of its own, and gives the gradients of its half
back; then it gets the newest weights and its next batch. It waits for nobody, and keeps nothing between two
batches. A gradient of a client that began `age` updates ago counts 1/sqrt(1 + age) of a fresh one; one that
is older than `max_staleness` is discarded. The server's own weights are never stale: it computes when smashed
data arrive.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from cutlayer.aggregation.base import Round, Shared
from cutlayer.errors import AbsentError, CheckpointError, MessageError, RollbackError
from cutlayer.protocol.plan import Plan, Step
from cutlayer.server.asynchronous.arrivals import ANSWER, Arrivals
from cutlayer.server.asynchronous.client_model import KeptClientModel
from cutlayer.server.asynchronous.in_flight import InFlight, from_checkpoint, to_checkpoint
from cutlayer.server.asynchronous.kept_messages import KeptMessages
from cutlayer.server.asynchronous.update import Update, discount
from cutlayer.server.client_pool import ClientPool
from cutlayer.server.modes import ServerWork
from cutlayer.server.participation import Participation
from cutlayer.server.results import StepResult
from cutlayer.server.simulated_work import BACKWARD, FORWARD
from cutlayer.server.step_io import Parties, StepIO
from cutlayer.split.state import client_state, restore_client, under
from cutlayer.wire.messages.types import Gradient, Share, SyncUp
from cutlayer.wire.meter import Direction, Kind

#: Where the clients' half stands in a checkpoint: as that of a run whose clients share one.
_HALF = "client.0."


@dataclass(frozen=True)
class Asynchronous:
    """What mode async needs beside what all modes need."""

    model: KeptClientModel
    arrivals: Arrivals
    max_staleness: int


class AsyncMode(Participation):
    """The clients of a run in mode async, and the batches that they work on."""

    def __init__(
        self, given: Asynchronous, work: ServerWork, parties: Parties, plan: Plan, clients: ClientPool
    ) -> None:
        self._kept = kept = KeptMessages(parties.transport)
        through = replace(parties, transport=kept, boundary=parties.boundary.through(kept), means=False)
        super().__init__(work, through, plan, clients)
        self.model = given.model
        self._arrivals = given.arrivals
        self._max_staleness = given.max_staleness
        self._flying: dict[int, InFlight] = {}
        self._given = [0] * len(plan.samples)
        """How many batches each client was given."""
        self._again = False
        """Whether all batches in flight have to be sent again: they are those of a checkpoint."""

    def admit(self, number: int) -> Sequence[int]:
        """See `Participation.admit`. They are let in whenever batches are given."""
        return ()

    def begin_step(self, number: int) -> tuple[Step, int]:
        """See `Participation.begin_step`. Who takes part is known when they arrive."""
        return self._plan.at(number), 0

    def run(self, step: Step, size: int, together: Callable[[Step, int], StepResult]) -> StepResult:
        """See `Participation.run`. One update of the server, after K arrivals."""
        update = self.update(step)
        step = replace(step, clients=tuple(update.clients), samples=tuple(update.samples))
        return StepResult(
            step=step,
            loss=self._work.mean(step, update.losses),
            losses=update.losses,
            error=self._work.mean(step, [report.error for report in update.reports]),
            raw_bytes=dict(update.raw),
            bits=update.bits,
            ages=update.ages,
            discarded=update.discarded,
        )

    def update(self, step: Step) -> Update:
        """Take arrivals until there are enough of them, and update both halves."""
        update = Update(step)
        self._give(update)
        while len(update.clients) < self._plan.arrivals:
            for client in self._arrivals.next([c for c in self._kept.members() if c in self._flying]):
                self._arrivals.taken(client)
                with suppress(AbsentError):
                    self._take(client, update)
                if len(update.clients) == self._plan.arrivals:
                    break
            else:
                # Those who come at the same instant are all taken before anybody begins anew.
                self._give(update)
        self._work.update(step)
        with self._work.timed():
            self.model.update(step.lr)
        if self._arrivals.seconds is not None:
            clock = self.parties.timeline.clock
            clock.add(max(0.0, self._arrivals.seconds - clock.seconds))
        return update

    def deliver(self, mean: Round, step: Step) -> tuple[Sequence[int], int]:
        """See `Participation.deliver`. There is no mean that all have at the same time."""
        raise TypeError("mode async has no step that clients end together")

    def kept(self, number: int) -> SyncUp:
        """See `Participation.kept`."""
        return self.model.shared(number)

    def holders(self, number: int, holder: int) -> tuple[Sequence[int], Share]:
        """See `Participation.holders`. Nobody has to be asked."""
        return (), Share.NOTHING

    def quiet(self, client: int) -> None:
        """See `Participation.quiet`. What a client is about to answer is taken off its connection."""
        if client not in self._flying or self._again:
            return
        if not self._kept.holds(client):
            # Here the run does wait for one client. Under `drop`, until the deadline.
            patient = self._kept.patient
            there = (
                self._arrivals.next([client]) if patient else self._kept.present([client], ANSWER, at_least=0)
            )
            if client not in there:
                raise AbsentError(f"{self._kept.label(client)} did not answer in time")
        with self.parties.boundary.blame(client):
            self._kept.hold(client, ANSWER)

    def state(self, number: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """See `Participation.state`: the clients' half and all batches in flight."""
        tensors, flying = to_checkpoint(self._flying)
        tensors |= {f"{_HALF}{name}": t for name, t in client_state(self.model.half).items()}
        arrivals = self._arrivals.state()
        return tensors, {"asynchronous": {"given": self._given, "flying": flying, "arrivals": arrivals}}

    def restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any], number: int) -> None:
        """See `Participation.restore`."""
        state = state["asynchronous"]
        given = [int(count) for count in state["given"]]
        if len(given) != len(self._given):
            raise CheckpointError("the checkpoint is of a run with another number of clients")
        restore_client(self.model.half, under(_HALF, tensors), number)
        self.model.discard()
        self._flying = from_checkpoint(tensors, state["flying"])
        self._given = given
        self._arrivals.restore(state["arrivals"])
        self._again = True

    def _welcome(self, number: int) -> None:
        """Send those who have come back what they had been sent; after a checkpoint, everybody."""
        before = set() if self._again else set(self._kept.members())
        if not self._kept.patient:
            self._clients.admit_newcomers(number)
        self._again = False
        members = set(self._kept.members())
        missing = sorted(set(range(len(self._given))) - members)
        if missing and self._kept.patient:
            # As one who was ready, but died before the run began or went on.
            raise RollbackError(f"{self._kept.label(missing[0])} is not there any more")
        back = members - before
        for client in sorted(back & self._flying.keys()):
            self._send_again(client, self._flying[client])

    def _send_again(self, client: int, one: InFlight) -> None:
        """The client computes again what it has lost. The server uses nothing twice."""
        one.ending = False
        with self._kept.meter.apart():
            self._kept.forget(client)
            self._kept.send(client, one.weights)
            self._kept.send(client, one.begin)
            if self._arrivals.immediate and one.gradient is not None:
                self._repeat(client, one, one.gradient)
            if self._arrivals.immediate:
                self._kept.hold(client, ANSWER)
        self._arrivals.asked_again(self._kept, client)

    def _repeat(self, client: int, one: InFlight, gradient: Gradient) -> None:
        """Answer smashed data that the server has used before as it did then."""
        self.parties.boundary.batch(client, one.batch.number, one.batch.samples[0])
        self._kept.send(client, gradient)
        one.ending = True

    def _give(self, update: Update) -> None:
        """Give everybody who has none the newest weights and a batch; those who come back, what they had."""
        step = update.step
        self._welcome(step.number)
        for client in self._kept.members():
            if client in self._flying:
                continue
            batch = self._plan.own_batch(client, self._given[client], step)
            one = InFlight(batch, self.model.message(step.number, step.lr))
            self._given[client] += 1
            self._flying[client] = one
            self._kept.send(client, one.weights)
            self._kept.send(client, one.begin)
            key = f"{Direction.DOWN}/{Kind.SYNC}"
            update.raw[key] += self.parties.aggregation.raw_bytes(Share.WEIGHTS)
            self._arrivals.asked(self._kept, batch, one.weights.size + one.begin.size, FORWARD)

    def _take(self, client: int, update: Update) -> None:
        """Take what a client has answered."""
        one = self._flying[client]
        if one.gradient is not None and not one.ending:
            self._repeat(client, one, one.gradient)
            return
        io = StepIO(self.parties, one.batch, {})
        try:
            if one.ending:
                self._end(client, one, io, update)
            else:
                self._train(client, one, io, update)
        finally:
            update.raw.update(io.raw)
            update.bits |= io.bits

    def _train(self, client: int, one: InFlight, io: StepIO, update: Update) -> None:
        """Smashed data and labels: compute, and send the gradient back."""
        half = self._work.half
        smashed, targets = io.receive_batch(one.batch, client)
        age = update.step.number - one.batch.number
        if age > self._max_staleness:
            self._discard(client, update)
            return
        with io.judged(client, smashed, half):
            with self._work.seeded(one.batch, client):
                one.loss, gradient = half.train(smashed, targets, self._weight(one.batch, age))
            io.send_down(one.batch, client, Gradient, gradient)
        (one.gradient,) = (sent for sent in self._kept.sent(client) if isinstance(sent, Gradient))
        one.ending = True
        self._arrivals.asked(self._kept, one.batch, one.gradient.size, BACKWARD)

    def _end(self, client: int, one: InFlight, io: StepIO, update: Update) -> None:
        """A client's gradients: it has arrived."""
        if not io.collect(one.batch, wait=True).clients:
            return
        age = update.step.number - one.batch.number
        if age > self._max_staleness:
            self._discard(client, update)
            return
        with self.parties.timeline.server("sync"), self.parties.boundary.blame(client):
            self.model.add(client, _itself(io.weights[client]), discount(age), self._weight(one.batch, age))
        update.clients.append(client)
        update.samples.extend(one.batch.samples)
        update.losses.append(one.loss)
        update.reports.extend(io.reports)
        update.ages.append(age)
        self._forget(client)

    def _discard(self, client: int, update: Update) -> None:
        update.discarded += 1
        self._forget(client)

    def _forget(self, client: int) -> None:
        del self._flying[client]
        self._kept.forget(client)

    def _weight(self, batch: Step, age: int) -> float:
        """The weight of a batch in an update: in that of K fresh ones of full size, all add up to 1."""
        share = batch.samples[0] / self._plan.batch_size if self._work.weighting == "samples" else 1.0
        return discount(age) * share / self._plan.arrivals


def _itself(shared: Shared) -> SyncUp:
    if not isinstance(shared, SyncUp):
        raise MessageError(f"a {type(shared).__name__} holds no gradients")
    return shared
