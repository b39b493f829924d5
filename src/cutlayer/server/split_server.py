"""The training loop: what the split server does at each step, in every mode and on every transport.

The loop holds the server's half and the plan, and reaches clients only through a `Transport`. It works
through clients in client order; so do all its sums. See docs/training.md for the path of a batch.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch

from cutlayer.aggregation.at_server import Aggregator
from cutlayer.config.schema import Config
from cutlayer.data.seeds import derive
from cutlayer.errors import DivergedError, NonFiniteError
from cutlayer.protocol.plan import Plan, Step
from cutlayer.protocol.run_codecs import Crossings
from cutlayer.server.modes import EXCHANGES
from cutlayer.server.results import Outcome
from cutlayer.server.step_io import Dialogue, NobodyError
from cutlayer.server.timeline import Timeline
from cutlayer.server.turns import Turns
from cutlayer.split.aggregate import shares
from cutlayer.split.server import ServerHalf
from cutlayer.wire.link.model import parse_links
from cutlayer.wire.messages.types import Ask, Share, Turn
from cutlayer.wire.meter import Direction, Kind
from cutlayer.wire.transport import Transport


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
        rates = config.codec.rate != "fixed"
        self.dialogue = Dialogue(transport, self.crossings, self.timeline, classes, rates)
        self.turns: Turns
        """Those of the present step."""
        self.number = 0
        self.trained: dict[int, int] = {}
        """Samples that each client has trained on since the weights were last averaged."""
        self.holder = 0
        """Relay: who has the current weights."""
        self._exchange = EXCHANGES[config.train.mode, config.train.server_batching]
        # Bytes of means that were sent, whose time counts with the next turn.
        self._down: dict[int, int] = {}

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
        outcome.raw_bytes = self.dialogue.raw
        outcome.bits = self.dialogue.chosen
        outcome.seconds = self.timeline.seconds
        outcome.simulated = self.timeline.clock.seconds
        return outcome

    def update_server(self, step: Step) -> None:
        """Apply what the server has collected."""
        with self.timeline.server("server"):
            self.server.update(step.lr)

    def seed_server(self, step: Step, client: int) -> None:
        """Dropout and the like draw from where in the run they are."""
        torch.default_generator.manual_seed(derive("server", self.seed, client, step.epoch, step.step))

    def state(self) -> dict[str, Any]:
        """Where the run is, as plain JSON. What has been learned is elsewhere."""
        return {
            "number": self.number,
            "trained": {str(client): n for client, n in self.trained.items()},
            "holder": self.holder,
            "meter": self.transport.meter.state(),
            "clock": self.timeline.clock.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` gave."""
        self.number = int(state["number"])
        self.trained = {int(client): int(n) for client, n in state["trained"].items()}
        self.holder = int(state["holder"])
        self.transport.meter.restore(state["meter"])
        self.timeline.clock.restore(state["clock"])

    def _run(self, step: Step) -> Outcome:
        if not self.transport.patient:
            step = step.only(self.transport.members())
        turn = Turn(step.number, step.epoch, step.step, step.lr, step.share)
        for client in step.clients:
            self.timeline.turn(client, turn.size + self._down.pop(client, 0))
        self.dialogue.begin(step)
        self.turns = Turns(self.dialogue, self.aggregator, step, self.trained)
        self.transport.announce(step.clients, turn)
        try:
            step, losses = self._exchange(self, step)
        except NobodyError:
            step, losses = step.only(()), []
        self.timeline.advance()
        ended = self.turns.collect(step, wait=True)
        if step.share == Share.WEIGHTS or (step.share == Share.GRADIENTS and ended.clients):
            self._synchronise(ended)
        self.timeline.end()
        reports = self.turns.reports
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

    def _synchronise(self, step: Step) -> None:
        """Give clients the mean of what they shared, or the next one the weights of the last."""
        turns, blaming = self.turns, self.dialogue.blaming
        if step.heir is not None:
            ((client, shared),) = turns.weights.items()
            with blaming(client):
                self.aggregator.check(shared, client)
            self._down[step.heir] = self.aggregator.hand_over(shared, client, step, step.heir, self.transport)
            self._count_raw_down(1, Share.WEIGHTS)
            self.holder = step.heir
            return
        mean = turns.gradients
        if step.share == Share.WEIGHTS:
            # Clients that sat this step out, but trained since weights were last averaged, count, too.
            samples = turns.ask_missing(step, dict(sorted(self.trained.items())))
            self.trained.clear()
            if not samples:
                return
            mean = self.aggregator.running(list(samples.values()))
            for client in samples:
                if client not in turns.weights:
                    self.transport.send(client, Ask(step.number, Share.WEIGHTS))
                    turns.weights[client] = turns.shared(step, client, Share.WEIGHTS)
                with self.timeline.server("sync"), blaming(client):
                    mean.add(turns.weights.pop(client), client)
        everybody = range(len(self.plan.samples))
        with self.timeline.server("sync"):
            size = self.aggregator.deliver(mean, step, everybody, self.transport)
        self._count_raw_down(len(self.transport.members()), step.share)
        self._down = dict.fromkeys(everybody, size)

    def _count_raw_down(self, recipients: int, share: Share) -> None:
        self.dialogue.count_raw(Direction.DOWN, Kind.SYNC, recipients * self.aggregator.raw_bytes(share))
