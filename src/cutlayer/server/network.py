"""A run whose clients are elsewhere: the server's half, the loop, and clients that come and go.

Clients keep nothing on disk. At a checkpoint they send their state, and it is stored as a run in one
process stores it, so that everything that reads a run reads this one, too. When the run goes on from a
checkpoint each client gets its state back.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from cutlayer.aggregation.all_gather import AllReduce
from cutlayer.aggregation.remote import Orders, RemoteAggregator
from cutlayer.config.schema import Config
from cutlayer.data.spec import DataSpec
from cutlayer.errors import MessageError, RollbackError
from cutlayer.protocol.build import make_client, make_server, prepare_model, shared_sizes
from cutlayer.protocol.handshake import digest, settings_for_clients
from cutlayer.protocol.plan import Plan
from cutlayer.protocol.state_bytes import from_bytes, to_bytes
from cutlayer.server.client_states import Asking, common, from_checkpoint, keep_elsewhere
from cutlayer.server.evaluation import evaluate
from cutlayer.server.results import Outcome, Scored
from cutlayer.server.split_server import Loop
from cutlayer.server.timeline import Timeline
from cutlayer.split.state import restore_server, server_state, under
from cutlayer.wire.grpc.transport import Hub
from cutlayer.wire.messages.types import Ask, Elsewhere, Share, State
from cutlayer.wire.meter import Meter
from cutlayer.wire.metrics import Metrics
from cutlayer.wire.transport import apart


class NetworkSession:
    """Training over a hub. Give it what the clients said of their data."""

    def __init__(
        self,
        config: Config,
        hub: Hub,
        clients: Sequence[Any],
        data_spec: DataSpec,
        metrics: Metrics | None = None,
        orders: Orders | None = None,
    ) -> None:
        self.config = config
        self.metrics = metrics
        self.orders = orders
        self.hub = hub
        self._data_spec = data_spec
        self._tests = [ready.test_samples if ready is not None else 0 for ready in clients]
        self.plan = Plan(config.train, data_spec.samples)
        self.reset()

    def reset(self) -> None:
        """Go back to the very beginning."""
        config = self.config
        self._parts = prepare_model(config, self._data_spec.placeholder_data().train)[1]
        self.server = make_server(config, self._parts)
        self.hub.meter = Meter()
        self.loop = Loop(config, self.plan, self.server, self.hub, self._data_spec.classes)
        self.loop.crossings.limit = self._largest()
        self.loop.crossings.sizes = shared_sizes(make_client(config, self._parts))
        if self.orders is not None:
            self.loop.aggregator = RemoteAggregator(self.loop.crossings, config.train.weighting, self.orders)
        elif self._among_clients:
            self.loop.aggregator = AllReduce(self.loop.crossings, config.train.weighting)
        self._states: dict[int, bytes] = {}

    @property
    def _among_clients(self) -> bool:
        return self.config.train.aggregation == "allreduce"

    @property
    def number(self) -> int:
        """How many steps are complete."""
        return self.loop.number

    @property
    def done(self) -> bool:
        """Whether all steps are complete."""
        return self.loop.number >= self.plan.total

    @property
    def timeline(self) -> Timeline:
        """Where the time goes."""
        return self.loop.timeline

    @property
    def meter(self) -> Meter:
        """The bytes of training."""
        return self.hub.meter

    def data_spec(self) -> DataSpec:
        """The data, without the data."""
        return self._data_spec

    def start(self) -> None:
        """Begin an era with all clients that are ready, each in the state that it had."""
        data_spec, era = self._data_spec, secrets.token_hex(8)
        if self.orders is not None:
            same = digest(settings_for_clients(self.config))
            self.orders.give("Begin", digest=same, step=self.number, era=era)
        spe = self.plan.steps_per_epoch
        welcome: dict[str, Any] = {"mean": data_spec.mean, "std": data_spec.std, "steps_per_epoch": spe}
        if self._among_clients:
            welcome["meeting"] = self.hub.meeting()
        self.hub.begin(self.number, era, **welcome)
        with apart(self.hub):
            for client in self.hub.members():
                if self.number and self.orders is not None:
                    self.hub.send(client, Elsewhere(self.number))
                elif self.number:
                    self.hub.send(client, State(self.number, self._states[client]))
        self._states = {}

    def outlook(self) -> dict[str, Any]:
        """Nothing: what a step will be takes all clients' data, which are not here."""
        return {}

    def step(self) -> Outcome:
        """Run the next step, with everybody who is there."""
        self._admit()
        outcome = self.loop.step()
        if self.metrics is not None:
            self.metrics.step()
            self.metrics.traffic(outcome.bytes)
            for stage, seconds in outcome.seconds.items():
                self.metrics.stage(stage, seconds)
        return outcome

    def evaluate(self) -> Scored | None:
        """The model as it is now, on the test set of the first client that has one."""
        members = self.hub.members()
        evaluator = next((c for c in members if self._tests[c]), None)
        if evaluator is None:
            self.hub.note("no client that has a test set is there: not evaluated")
            return None
        try:
            return evaluate(self.loop, self._tests[evaluator], self.config.train.evaluate_batch, evaluator)
        except MessageError as error:
            if self.hub.patient:
                raise
            self.hub.note(f"not evaluated: {error}")
            return None

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything, in the same form as a run in one process."""
        tensors = {f"server.{name}": t for name, t in server_state(self.server).items()}
        with apart(self.hub):
            if self.orders is not None:
                keep_elsewhere(self.hub, self.orders, self.number)
            else:
                asking = Asking(self.config, self.hub, self._parts, self.loop.crossings, self.number)
                tensors |= asking.tensors()
        tensors |= self.loop.aggregator.state()
        return tensors, self.loop.state()

    def restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Continue exactly where `state` was taken; clients follow in `start`."""
        restore_server(self.server, under("server.", tensors))
        if self.orders is None:
            number = int(state["number"])
            self._states = from_checkpoint(self.config, self._parts, tensors, number)
        self.loop.aggregator.restore(tensors)
        self.loop.restore(state)

    def _admit(self) -> None:
        """Bring those who come back to the state of those who are there."""
        if self.hub.patient:
            return
        for client in self.hub.newcomers():
            members = self.hub.members()
            if not members:
                raise RollbackError("nobody is left who could tell the present state")
            with apart(self.hub):
                self.hub.send(members[0], Ask(self.number, Share.STATE))
                if not self.hub.present(members[:1], 1, at_least=0):
                    return
                message = self.hub.receive(members[0])
                self._tests[client] = self.hub.test_samples(client)
                self.hub.admit(client, self.number)
                if self.number and isinstance(message, State):
                    body = to_bytes(common(from_bytes(message.body)))
                    self.hub.send(client, State(message.number, body))
            self.hub.note(f"client {client} is back at step {self.number}")

    @torch.no_grad()
    def _largest(self) -> int:
        """The most elements of any tensor that an honest client sends."""
        train = self.config.train
        x = self._data_spec.preprocess().test(self._data_spec.placeholder_data().train.images[:1])
        features = 0
        for part in self._parts[: len(self._parts) - 1 or 1]:
            x = part.eval()(x)
            part.train()
            features = max(features, x.numel())
        learned: int = sum(
            t.numel() for part in (self._parts[0], *self._parts[2:]) for t in part.state_dict().values()
        )
        return max(learned, int(features) * max(train.batch_size, train.evaluate_batch))
