"""The training loop: what the split server does at each step, in every mode and on every transport.

The loop holds the server's half and the plan, and reaches clients only through a `Transport`. It works
through clients in client order; so do all its sums. See docs/training.md for the path of a batch.
"""

import math
from typing import TypeVar

import torch
from torch import Tensor

from cutlayer.errors import DivergedError, MessageError, NonFiniteError
from cutlayer.run.aggregator import Aggregator
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
from cutlayer.wire.link import Link
from cutlayer.wire.messages import (
    Ask,
    Gradient,
    Labels,
    Message,
    Report,
    Share,
    Smashed,
    SyncDown,
    SyncUp,
    Turn,
)
from cutlayer.wire.meter import Direction
from cutlayer.wire.transport import Transport

M = TypeVar("M", bound=Message)


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
        self.timeline = Timeline(None if config.link.spec == "none" else Link.parse(config.link.spec))
        self.number = 0
        self.trained: dict[int, int] = {}
        """Samples that each client has trained on since the weights were last averaged."""
        self.holder = 0
        """Relay: who has the current weights."""
        self._exchange = EXCHANGES[config.train.mode, config.train.server_batching]
        # Bytes of means that were sent, whose time counts with the next turn.
        self._down: dict[int, int] = {}
        self._raw: dict[str, int] = {}

    def step(self) -> Outcome:
        """Run the next step."""
        step = self.plan.at(self.number)
        before = self.transport.meter.snapshot()
        self.timeline.begin()
        try:
            outcome = self._run(step)
        except NonFiniteError as error:
            raise DivergedError(
                f"training diverged at step {step.number + 1}: {error}", step.number
            ) from error
        if not math.isfinite(outcome.loss):
            raise DivergedError(
                f"training diverged at step {step.number + 1}: the loss is {outcome.loss}", step.number
            )
        self.number += 1
        outcome.bytes = self.transport.meter.since(before)
        outcome.raw_bytes, self._raw = self._raw, {}
        outcome.seconds = self.timeline.seconds
        outcome.simulated = self.timeline.clock.seconds
        return outcome

    def _run(self, step: Step) -> Outcome:
        turn = Turn(step.number, step.epoch, step.step, step.lr, step.share)
        size = turn.size
        for client in step.clients:
            # The turn follows the last step's mean: one latency for both.
            self.timeline.transfer(client, Direction.DOWN, size + self._down.pop(client, 0))
        self.transport.announce(step.clients, turn)
        losses = self._exchange(self, step)
        self.timeline.barrier()
        shared, reports = {}, []
        for client, samples in zip(step.clients, step.samples, strict=True):
            self.trained[client] = self.trained.get(client, 0) + samples
            if step.share != Share.NOTHING:
                shared[client] = self._expect(step, client, SyncUp)
            report = self._expect(step, client, Report)
            # The exact bytes of what went up at the end of the turn, in one message's latency.
            self.timeline.transfer(
                client, Direction.UP, report.size + (shared[client].size if client in shared else 0)
            )
            self.timeline.reported(client, report)
            reports.append(report)
        self.timeline.barrier()
        if step.share != Share.NOTHING:
            self._synchronise(step, shared)
            self.timeline.barrier()
        weights = shares(step.samples, self.weighting)
        losses = losses or [report.loss for report in reports]
        return Outcome(
            step=step,
            loss=sum(w * loss for w, loss in zip(weights, losses, strict=True)),
            losses=losses,
            error=sum(w * report.error for w, report in zip(weights, reports, strict=True)),
        )

    def _synchronise(self, step: Step, shared: dict[int, SyncUp]) -> None:
        if step.heir is not None:
            (message,) = shared.values()
            self._share(self.aggregator.handed_over(message, step), [step.heir])
            self.holder = step.heir
            return
        samples = dict(zip(step.clients, step.samples, strict=True))
        if step.share == Share.WEIGHTS:
            # Clients that sat this step out, but trained since weights were last averaged, count, too.
            samples = dict(sorted(self.trained.items()))
            for client in samples.keys() - shared.keys():
                self.transport.send(client, Ask(step.number, Share.WEIGHTS))
                shared[client] = self._expect(step, client, SyncUp)
            self.trained.clear()
        with self.timeline.server("sync"):
            mean = self.aggregator.mean([shared[c] for c in samples], list(samples.values()), step)
        self._share(mean, range(len(self.plan.samples)))

    def _share(self, message: SyncDown, clients: list[int] | range) -> None:
        for client in clients:
            self._down[client] = message.size
            self.transport.send(client, message)

    def update_server(self, step: Step) -> None:
        """Apply what the server has collected."""
        with self.timeline.server("server"):
            self.server.update(step.lr)

    def seed_server(self, step: Step, client: int) -> None:
        """Dropout and the like draw from where in the run they are."""
        torch.default_generator.manual_seed(derive("server", self.seed, client, step.epoch, step.step))

    def receive_batch(self, step: Step, client: int) -> tuple[Tensor, Tensor]:
        """A client's smashed data and labels."""
        message = self._expect(step, client, Smashed)
        labels = self._expect(step, client, Labels)
        self.timeline.transfer(client, Direction.UP, message.size + labels.size)
        with self.timeline.server("server_decode"):
            smashed = self.crossings.decode(message.body)
            unpacked = torch.from_numpy(packing.unpack(labels.body, labels.count, self.classes))
        self._count_raw(Direction.UP, message, smashed)
        if len(unpacked) != len(smashed):
            raise MessageError(f"client {client}: {len(unpacked)} labels for {len(smashed)} samples")
        return smashed, unpacked

    def receive_tensor(self, step: Step, client: int, kind: type[Smashed | Gradient]) -> Tensor:
        """A client's smashed data, or the gradient from its tail."""
        message = self._expect(step, client, kind)
        self.timeline.transfer(client, Direction.UP, message.size)
        with self.timeline.server("server_decode"):
            tensor = self.crossings.decode(message.body)
        self._count_raw(Direction.UP, message, tensor)
        return tensor

    def send_down(self, step: Step, client: int, kind: type[Smashed | Gradient], tensor: Tensor) -> None:
        """Send a client its gradient, or the activations for its tail."""
        what = "down" if kind is Gradient else "down-features"
        with self.timeline.server("server_encode"):
            frame = self.crossings.encode(self.crossings.down, tensor, what, client, step.epoch, step.step)
        self.timeline.transfer(client, Direction.DOWN, len(frame))
        message = kind(step.number, frame)
        self._count_raw(Direction.DOWN, message, tensor)
        self.transport.send(client, message)

    def _count_raw(self, direction: Direction, message: Message, tensor: Tensor) -> None:
        key = f"{direction}/{message.kind}"
        self._raw[key] = self._raw.get(key, 0) + 4 * tensor.numel()

    def _expect(self, step: Step, client: int, kind: type[M]) -> M:
        message = self.transport.receive(client)
        if not isinstance(message, kind) or message.number != step.number:
            raise MessageError(
                f"client {client} sent a {type(message).__name__} of step {message.number}; expected a "
                f"{kind.__name__} of step {step.number}"
            )
        return message
