"""The split server: one step after another, in every mode and on every transport.

It holds the server's half, the plan and a pool of clients, which are in this process or elsewhere: the only
difference between two runs. It reaches them through a `Transport`. It works through
clients in client order; so do all its sums. docs/architecture.md draws the path of a batch.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from torch import Tensor

from cutlayer.aggregation.base import Aggregation, HandsOver, Round
from cutlayer.errors import AbsentError, DivergedError, NonFiniteError
from cutlayer.protocol.boundary import Agreed, Boundary
from cutlayer.protocol.client_memory import ClientMemory
from cutlayer.protocol.plan import Plan, Step
from cutlayer.protocol.run_codecs import RunCodecs
from cutlayer.protocol.state_bytes import OWN
from cutlayer.server.client_pool import ClientPool
from cutlayer.server.modes import MODES, ServerWork
from cutlayer.server.participation import AllClients, Participation
from cutlayer.server.results import StepResult
from cutlayer.server.simulated_work import SimulatedWork
from cutlayer.server.step_io import NobodyError, Parties, StepIO
from cutlayer.server.timeline import Timeline
from cutlayer.split.server import ServerHalf
from cutlayer.split.state import restore_server, server_state, under
from cutlayer.split.weights import Weighting
from cutlayer.tasks.base import Task
from cutlayer.wire.link.model import Link
from cutlayer.wire.messages.types import GRADIENTS, Ask, BeginStep, Share
from cutlayer.wire.meter import Direction, Kind

MakeParticipation = Callable[[ServerWork, Parties, Plan, ClientPool], Participation]

_WEIGHTS = (Share.WEIGHTS, Share.DIFFERENCES)


class SplitServer:
    """Runs steps. `number` is the next one."""

    #: Whether all clients of the run are this process' own.
    alone = True

    def __init__(
        self,
        half: ServerHalf,
        plan: Plan,
        task: Task,
        codecs: RunCodecs,
        clients: ClientPool,
        aggregation: Aggregation,
        *,
        seed: int = 0,
        batching: Literal["per_client", "fused"] = "per_client",
        weighting: Weighting = "clients",
        links: Sequence[Link] = (),
        note_rates: bool = False,
        agreed: Agreed | None = None,
        make_participation: MakeParticipation = AllClients,
        make_work: Callable[[ServerHalf, Timeline, Weighting, int], ServerWork] = ServerWork,
        early: bool = False,
        work: SimulatedWork | None = None,
        memories: Mapping[int, ClientMemory] | None = None,
    ) -> None:
        """`make_participation`: who takes part in each step. `work`: how long simulated clients compute.

        `memories`: what is remembered of each client's samples.
        """
        self.half = half
        self.plan = plan
        self.task = task
        self.codecs = codecs
        self.clients = clients
        self.transport = transport = clients.transport
        self.aggregation = aggregation
        self.timeline = Timeline(*links, work=work)
        agreed = agreed or Agreed()
        self.boundary = Boundary(transport, codecs, agreed, task, aggregation.shares)
        """For what comes between steps; within one, decoding is on the timeline."""
        self.number = 0
        self.trained: dict[int, int] = {}
        """Samples that each client has trained on since weights were last averaged."""
        self.holder = 0
        """Relay: who has the current weights."""
        self._work = make_work(half, self.timeline, weighting, seed)
        timed = Boundary(
            transport, codecs, agreed, task, aggregation.shares, lambda: self.timeline.server("server_decode")
        )
        self._memories = memories or {}
        parties = Parties(
            transport,
            timed,
            codecs,
            aggregation,
            self.timeline,
            note_rates,
            early,
            memories=self._memories,
        )
        self.participation = make_participation(self._work, parties, plan, clients)
        """Who takes part in each step, and where the clients' half is kept."""
        self._mode = MODES.get((plan.mode, batching))
        self._losses: list[float] = []
        # Bytes of means that were sent, whose time counts with the next step.
        self._down: dict[int, int] = {}

    @property
    def done(self) -> bool:
        """Whether all steps are complete."""
        return self.number >= self.plan.total

    @property
    def diverging(self) -> bool:
        """Whether the server sees for itself that training diverges, whatever a client says.

        Its weights are beyond what is accepted from clients, or so are most losses of the last step.
        """
        limit = self.codecs.max_value
        if limit is None:
            return False
        beyond = [not abs(loss) <= limit for loss in self._losses]
        if 2 * sum(beyond) > len(beyond):
            return True
        return self.half.exceeds(limit)

    def step(self) -> StepResult:
        """Run the next step, with everybody who is there."""
        self.participation.admit(self.number)
        before = self.transport.meter.snapshot()
        self.timeline.begin(phases=3 if self.plan.mode == "u-shaped" else 2)
        step, size = self.participation.begin_step(self.number)
        try:
            result = self.participation.run(step, size, self._run)
        except NonFiniteError as error:
            raise DivergedError(
                f"training diverged at step {step.number + 1}: {error}", step.number
            ) from error
        if result.step.clients and not math.isfinite(result.loss):
            raise DivergedError(
                f"training diverged at step {step.number + 1}: the loss is {result.loss}", step.number
            )
        self.number += 1
        self._losses = result.losses
        result.bytes = self.transport.meter.since(before)
        result.seconds = self.timeline.seconds
        result.simulated = self.timeline.clock.seconds
        return result

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What server and clients have learned, by name, and where the run is, as plain JSON."""
        tensors = {f"server.{name}": t for name, t in self.half_state().items()}
        found, further = self.participation.state(self.number)
        for client, memory in self._memories.items():
            # A client has the same, and gets it back from here.
            found |= {f"client.{client}.{OWN}{name}": tensor for name, tensor in memory.state().items()}
        return tensors | found | self.aggregation.state(), {
            "number": self.number,
            "trained": {str(client): n for client, n in self.trained.items()},
            "holder": self.holder,
            "meter": self.transport.meter.state(),
            "clock": self.timeline.clock.state(),
            **further,
        }

    def restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Continue exactly where `state` was taken."""
        self.participation.restore(tensors, state, int(state["number"]))
        for client, memory in self._memories.items():
            memory.restore(under(f"client.{client}.{OWN}", tensors))
        self.restore_half(under("server.", tensors))
        self.aggregation.restore(tensors)
        self.number = int(state["number"])
        self.trained = {int(client): int(n) for client, n in state["trained"].items()}
        self.holder = int(state["holder"])
        self.transport.meter.restore(state["meter"])
        self.timeline.clock.restore(state["clock"])

    def half_state(self) -> dict[str, Tensor]:
        """The state of the server's half."""
        return server_state(self.half)

    def restore_half(self, state: Mapping[str, Tensor]) -> None:
        """Continue with what `half_state` gave."""
        restore_server(self.half, state)

    def average_clients(self) -> Round:
        """The clients' model as it is now: the mean of what they hold, to be delivered."""
        transport = self.transport
        kept = self.participation.kept(self.number)
        if kept is not None:
            mean = self.aggregation.round([1])
            mean.add(0, kept)
            return mean
        clients, share = self.participation.holders(self.number, self.holder)
        transport.announce(clients, Ask(self.number, share))
        # All answers are taken before any is averaged: who is out has no weight, and no answer stays behind.
        shared = {}
        for client in transport.present(clients, 1):
            with suppress(AbsentError):
                answer = self.boundary.shared(client, self.number, share)
                if not transport.patient:
                    self.boundary.check_shared(client, answer)
                shared[client] = answer
        mean = self.aggregation.round([self.plan.samples[client] for client in shared])
        for client, answer in shared.items():
            with self.boundary.blame(client):
                mean.add(client, answer)
        return mean

    def _run(self, step: Step, size: int) -> StepResult:
        """The step, before which the round's clients got `size` bytes each."""
        if not self.transport.patient:
            step = step.only(set(self.transport.members()))
        begin = BeginStep(step.number, step.epoch, step.step, step.lr, step.share)
        for client in step.clients:
            self.timeline.begun(client, begin.size + size + self._down.pop(client, 0))
        io = StepIO(self.participation.parties, step, self.trained)
        if size:
            self._count_raw_down(io, len(step.clients), Share.WEIGHTS)
        self.transport.announce(step.clients, begin)
        if self._mode is None:
            raise TypeError(f"mode {self.plan.mode} has no function of one step")
        try:
            if self.alone and not step.clients:
                raise NobodyError
            step, losses = self._mode(self._work, io, step)
        except NobodyError:
            step, losses = step.only(()), []
        self.timeline.advance()
        ended = io.collect(step, wait=True)
        if step.share in _WEIGHTS or (step.share in GRADIENTS and (ended.clients or not self.alone)):
            self._synchronise(io, ended)
        self.timeline.end()
        step, losses = (step, losses) if losses else (ended, [report.loss for report in io.reports])
        errors = [report.error for report in io.reports]
        return StepResult(
            step=step,
            loss=self._mean(step, losses),
            losses=losses,
            error=self._mean(ended, errors),
            errors=errors,
            raw_bytes=io.raw,
            bits=io.bits,
        )

    def _mean(self, step: Step, values: list[float]) -> float:
        return self._work.mean(step, values)

    def _synchronise(self, io: StepIO, step: Step) -> None:
        """Give clients the mean of what they shared, or the next one the weights of the last."""
        if step.heir is not None:
            self._hand_over(io, step, step.heir)
            return
        mean, trained = io.gradients, dict(sorted(self.trained.items()))
        self.trained.clear()
        if step.share in _WEIGHTS:
            # Clients that sat this step out, but trained since weights were last averaged, count, too.
            samples = io.ask_missing(step, trained)
            if not samples and self.alone:
                return
            mean = self.aggregation.round(list(samples.values()))
            for client in samples:
                with self.timeline.server("sync"), self.boundary.blame(client):
                    mean.add(client, io.weights.pop(client))
        with self.timeline.server("sync"):
            recipients, size = self.participation.deliver(mean, step)
        if recipients:
            self._count_raw_down(io, len(self.transport.members()), step.share)
        self._down = dict.fromkeys(recipients, size)

    def _hand_over(self, io: StepIO, step: Step, heir: int) -> None:
        if not isinstance(self.aggregation, HandsOver):
            raise TypeError("mode relay needs an aggregation that can hand weights over")
        ((client, shared),) = io.weights.items()
        self.boundary.check_shared(client, shared)
        self._down[heir] = self.aggregation.hand_over(client, shared, step, heir)
        self._count_raw_down(io, 1, Share.WEIGHTS)
        self.holder = heir

    def _count_raw_down(self, io: StepIO, recipients: int, share: Share) -> None:
        io.count_raw(Direction.DOWN, Kind.SYNC, recipients * self.aggregation.raw_bytes(share))
