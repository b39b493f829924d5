"""The training loop: what the split server does at each step, in every mode and on every transport.

The loop holds the server's half and the plan, and reaches clients only through a `Transport`. It works
through clients in client order; so do all its sums. See docs/training.md for the path of a batch.
"""

import math
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from cutlayer.errors import (
    AbsentError,
    DivergedError,
    FrameError,
    MessageError,
    NonFiniteError,
)
from cutlayer.run.aggregator import Aggregator, RunningMean
from cutlayer.run.config import Config
from cutlayer.run.crossing import Crossings
from cutlayer.run.data.seeds import derive
from cutlayer.run.exchanges import EXCHANGES
from cutlayer.run.outcome import Outcome
from cutlayer.run.plan import Plan, Step
from cutlayer.run.timeline import Timeline
from cutlayer.split.aggregate import shares
from cutlayer.split.server import ServerHalf
from cutlayer.wire import labels as packing
from cutlayer.wire.link import parse_links
from cutlayer.wire.messages import (
    Ask,
    Gradient,
    Labels,
    Message,
    Report,
    Share,
    Smashed,
    SyncUp,
    Turn,
)
from cutlayer.wire.meter import Direction, Kind
from cutlayer.wire.transport import Transport

M = TypeVar("M", bound=Message)


class _NobodyError(Exception):
    """Everybody who could take part in a step is gone. The run goes on with the next one."""


@dataclass
class Turns:
    """The turns of a step: how large the batches are, and what has come in at their ends."""

    planned: dict[int, int]
    gradients: RunningMean
    weights: dict[int, Message] = field(default_factory=dict)
    reports: list[Report] = field(default_factory=list)


class Loop:
    """Runs steps. `number` is the next one."""

    def __init__(
        self, config: Config, plan: Plan, server: ServerHalf, transport: Transport, classes: int
    ) -> None:
        self.plan = plan
        self.server = server
        self.transport = transport
        self.classes = classes
        self.seed = config.seed
        self.weighting = config.train.weighting
        self.crossings = Crossings(config.codec, config.seed)
        self.aggregator = Aggregator(self.crossings, self.weighting)
        self.timeline = Timeline(*parse_links(config.link.spec))
        self.number = 0
        self.trained: dict[int, int] = {}
        """Samples that each client has trained on since the weights were last averaged."""
        self.holder = 0
        """Relay: who has the current weights."""
        self._exchange = EXCHANGES[config.train.mode, config.train.server_batching]
        # Bytes of means that were sent, whose time counts with the next turn.
        self._down: dict[int, int] = {}
        self._turns: Turns
        self._raw: dict[str, int] = {}
        # Bits an element that clients chose, where they do.
        self._chosen: dict[str, float] | None = None if config.codec.rate == "fixed" else {}
        # What was taken ahead of its turn.
        self._early: dict[int, Any] = {}

    def step(self) -> Outcome:
        """Run the next step."""
        step = self.plan.at(self.number)
        before = self.transport.meter.snapshot()
        self.timeline.begin(phases=3 if self.plan.train.mode == "u-shaped" else 2)
        try:
            outcome = self._run(step)
        except NonFiniteError as error:
            raise DivergedError(
                f"training diverged at step {step.number + 1}: {error}", step.number
            ) from error
        if outcome.step.clients and not math.isfinite(outcome.loss):
            raise DivergedError(
                f"training diverged at step {step.number + 1}: the loss is {outcome.loss}", step.number
            )
        self.number += 1
        outcome.bytes = self.transport.meter.since(before)
        outcome.raw_bytes, self._raw = self._raw, {}
        if self._chosen is not None:
            outcome.bits, self._chosen = self._chosen, {}
        outcome.seconds = self.timeline.seconds
        outcome.simulated = self.timeline.clock.seconds
        return outcome

    def _run(self, step: Step) -> Outcome:
        if not self.transport.patient:
            step = _restrict(step, self.transport.members())
        turn = Turn(step.number, step.epoch, step.step, step.lr, step.share)
        for client in step.clients:
            self.timeline.turn(client, turn.size + self._down.pop(client, 0))
        planned = dict(zip(step.clients, step.samples, strict=True))
        self._turns = Turns(planned, self.aggregator.running(step.samples))
        self.transport.announce(step.clients, turn)
        try:
            step, losses = self._exchange(self, step)
        except _NobodyError:
            step, losses = _restrict(step, ()), []
        self.timeline.advance()
        ended = self.collect(step, wait=True)
        if step.share == Share.WEIGHTS or (step.share == Share.GRADIENTS and ended.clients):
            self._synchronise(ended, self._turns)
        self.timeline.end()
        reports = self._turns.reports
        step, losses = (step, losses) if losses else (ended, [report.loss for report in reports])
        return Outcome(
            step=step,
            loss=self._mean(step, losses),
            losses=losses,
            error=self._mean(ended, [report.error for report in reports]),
        )

    def _mean(self, step: Step, values: list[float]) -> float:
        weights = shares(step.samples, self.weighting)
        return sum(w * v for w, v in zip(weights, values, strict=True)) if weights else math.nan

    def gather(self, step: Step, messages: int, take: Callable[[Step, int], Any]) -> Step:
        """The step with those clients whose messages are there and in order.

        A patient transport needs no such look: everybody will answer, and each is taken in turn. Otherwise
        the messages are taken and decoded here, because the weights of a mean depend on who takes part in
        it.
        """
        if self.transport.patient:
            return step
        for client in self.transport.present(step.clients, messages):
            with suppress(MessageError, FrameError):
                self._early[client] = take(step, client)
        step = _restrict(step, self._early)
        if not step.clients:
            raise _NobodyError
        return step

    @contextmanager
    def _blaming(self, client: int) -> Iterator[None]:
        """What goes wrong inside is the client's fault."""
        try:
            yield
        except AbsentError:
            raise
        except (MessageError, FrameError) as error:
            self.transport.fault(client, error)
            raise

    def collect(self, step: Step, wait: bool) -> Step:
        """Take what clients send at the end of their turns, in client order: all, or what is there already.

        Gradients are added up as they come, so that those of a thousand clients need not wait in memory.
        Gives the step with those who ended it.
        """
        turns = self._turns
        if not self.transport.patient:
            return self._collect_present(step) if wait else step
        while len(turns.reports) < len(step.clients):
            client = step.clients[len(turns.reports)]
            if not (wait or self.transport.ready(client)):
                return step
            shared, report = self._end_of_turn(step, client)
            turns.reports.append(report)
            if step.share == Share.GRADIENTS and shared is not None:
                with self.timeline.server("sync"), self._blaming(client):
                    turns.gradients.add(shared, client)
            elif shared is not None:
                turns.weights[client] = shared
        return step

    def _collect_present(self, step: Step) -> Step:
        ended: dict[int, tuple[Message | None, Report]] = {}
        for client in self.transport.present(step.clients, 1 + (step.share != Share.NOTHING)):
            with suppress(MessageError, FrameError):
                shared, report = self._end_of_turn(step, client)
                with self._blaming(client):
                    if shared is not None:
                        self.aggregator.check(shared, client)
                ended[client] = (shared, report)
        step = _restrict(step, ended)
        turns = self._turns
        turns.reports = [report for _, report in ended.values()]
        turns.weights = {client: shared for client, (shared, _) in ended.items() if shared is not None}
        if step.share == Share.GRADIENTS:
            turns.gradients = self.aggregator.running(step.samples)
            for client, shared in turns.weights.items():
                turns.gradients.add(shared, client)
        return step

    def _end_of_turn(self, step: Step, client: int) -> tuple[Message | None, Report]:
        shared = self._shared(step, client, step.share) if step.share != Share.NOTHING else None
        report = self._expect(step, client, Report)
        self.timeline.finished(client, report, report.size + (shared.size if shared else 0))
        self.trained[client] = self.trained.get(client, 0) + self._turns.planned[client]
        return shared, report

    def _shared(self, step: Step, client: int, share: Share) -> Message:
        """What a client shares, not looked into yet."""
        message = self._expect(step, client, self.aggregator.shared)
        if isinstance(message, SyncUp) and message.share != share:
            with self._blaming(client):
                raise MessageError(f"client {client} shared {message.share.name} instead of {share.name}")
        self._count_raw(Direction.UP, Kind.SYNC, self.aggregator.raw_bytes(share))
        return message

    def _synchronise(self, step: Step, turns: Turns) -> None:
        if step.heir is not None:
            ((client, shared),) = turns.weights.items()
            with self._blaming(client):
                self.aggregator.check(shared, client)
            self._down[step.heir] = self.aggregator.hand_over(shared, client, step, step.heir, self.transport)
            self._count_raw(Direction.DOWN, Kind.SYNC, self.aggregator.raw_bytes(Share.WEIGHTS))
            self.holder = step.heir
            return
        mean = turns.gradients
        if step.share == Share.WEIGHTS:
            # Clients that sat this step out, but trained since weights were last averaged, count, too.
            samples = self._asked(step, dict(sorted(self.trained.items())))
            self.trained.clear()
            if not samples:
                return
            mean = self.aggregator.running(list(samples.values()))
            for client in samples:
                if client not in turns.weights:
                    self.transport.send(client, Ask(step.number, Share.WEIGHTS))
                    turns.weights[client] = self._shared(step, client, Share.WEIGHTS)
                with self.timeline.server("sync"), self._blaming(client):
                    mean.add(turns.weights.pop(client), client)
        everybody = range(len(self.plan.samples))
        with self.timeline.server("sync"):
            size = self.aggregator.deliver(mean, step, everybody, self.transport)
        reached = len(self.transport.members())
        self._count_raw(Direction.DOWN, Kind.SYNC, reached * self.aggregator.raw_bytes(step.share))
        self._down = dict.fromkeys(everybody, size)

    def _asked(self, step: Step, samples: dict[int, int]) -> dict[int, int]:
        """Where not everybody answers: ask those whose weights are missing, and leave out who does not."""
        if self.transport.patient:
            return samples
        weights = self._turns.weights
        asked = [client for client in self.transport.members() if client in samples and client not in weights]
        self.transport.announce(asked, Ask(step.number, Share.WEIGHTS))
        for client in self.transport.present(asked, 1, at_least=0):
            with suppress(MessageError, FrameError):
                weights[client] = self._shared(step, client, Share.WEIGHTS)
        return {client: n for client, n in samples.items() if client in weights}

    def update_server(self, step: Step) -> None:
        """Apply what the server has collected."""
        with self.timeline.server("server"):
            self.server.update(step.lr)

    def seed_server(self, step: Step, client: int) -> None:
        """Dropout and the like draw from where in the run they are."""
        torch.default_generator.manual_seed(derive("server", self.seed, client, step.epoch, step.step))

    def receive_batch(self, step: Step, client: int) -> tuple[Tensor, Tensor]:
        """A client's smashed data and labels."""
        if client in self._early:
            found: tuple[Tensor, Tensor] = self._early.pop(client)
            return found
        return self.take_batch(step, client)

    def take_batch(self, step: Step, client: int) -> tuple[Tensor, Tensor]:
        """The same, as it comes from the transport."""
        message = self._expect(step, client, Smashed)
        labels = self._expect(step, client, Labels)
        self.timeline.up(client, message.size + labels.size)
        with self._blaming(client), self.timeline.server("server_decode"):
            smashed = self.crossings.decode(message.body)
            unpacked = torch.from_numpy(packing.unpack(labels.body, labels.count, self.classes))
            self._accept(step, client, message, smashed)
            if len(unpacked) != len(smashed):
                raise MessageError(f"client {client}: {len(unpacked)} labels for {len(smashed)} samples")
        return smashed, unpacked

    def receive_tensor(self, step: Step, client: int, kind: type[Smashed | Gradient]) -> Tensor:
        """A client's smashed data, or the gradient from its tail."""
        if client in self._early:
            early: Tensor = self._early.pop(client)
            return early
        message = self._expect(step, client, kind)
        self.timeline.up(client, message.size)
        with self._blaming(client), self.timeline.server("server_decode"):
            tensor = self.crossings.decode(message.body)
            self._accept(step, client, message, tensor)
        return tensor

    def send_down(self, step: Step, client: int, kind: type[Smashed | Gradient], tensor: Tensor) -> None:
        """Send a client its gradient, or the activations for its tail."""
        what = "down" if kind is Gradient else "down-features"
        with self.timeline.server("server_encode"):
            frame = self.crossings.encode(self.crossings.down, tensor, what, client, step.epoch, step.step)
        self.timeline.down(client, len(frame))
        message = kind(step.number, frame)
        self._count_raw(Direction.DOWN, message.kind, 4 * tensor.numel())
        self.transport.send(client, message)

    def _accept(self, step: Step, client: int, message: Message, tensor: Tensor) -> None:
        planned = self._turns.planned[client]
        if not tensor.dim() or len(tensor) != planned:
            raise MessageError(
                f"client {client} sent {type(message).__name__} of shape {list(tensor.shape)}; its batch of "
                f"step {step.number} has {planned} samples"
            )
        self._count_raw(Direction.UP, message.kind, 4 * tensor.numel())
        if self._chosen is not None and isinstance(message, Smashed):
            self._chosen[str(client)] = 8 * message.size / tensor.numel()

    def _count_raw(self, direction: Direction, kind: Kind, nbytes: int) -> None:
        if nbytes:
            key = f"{direction}/{kind}"
            self._raw[key] = self._raw.get(key, 0) + nbytes

    def _expect(self, step: Step, client: int, kind: type[M]) -> M:
        with self._blaming(client):
            message = self.transport.receive(client)
            if type(message) is not kind or message.number != step.number:
                raise MessageError(
                    f"client {client} sent a {type(message).__name__} of step {message.number}; expected a "
                    f"{kind.__name__} of step {step.number}"
                )
        return message


def _restrict(step: Step, clients: Collection[int]) -> Step:
    """The step with only those of its clients; perhaps with none."""
    kept = [(c, n) for c, n in zip(step.clients, step.samples, strict=True) if c in clients]
    return replace(step, clients=tuple(c for c, _ in kept), samples=tuple(n for _, n in kept))
