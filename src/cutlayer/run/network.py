"""A run whose clients are elsewhere: the server's half, the loop, and the clients' states on their way.

Clients keep nothing on disk. At a checkpoint they send their state, and it is stored as a run in one
process stores it, so that everything that reads a run reads this one, too. When the run goes on from a
checkpoint each client gets its state back.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from cutlayer.errors import MessageError, RollbackError
from cutlayer.run.allreduce import AllReduce
from cutlayer.run.card import Card
from cutlayer.run.config import Config
from cutlayer.run.evaluate import evaluate
from cutlayer.run.loop import Loop
from cutlayer.run.offer import digest, settings_for_clients
from cutlayer.run.outcome import Outcome, Scored
from cutlayer.run.plan import Plan
from cutlayer.run.remote_aggregator import Orders, RemoteAggregator
from cutlayer.run.setup import make_client, make_server, prepare_model, shared_sizes, shares_model
from cutlayer.run.state_bytes import from_bytes, to_bytes
from cutlayer.run.timeline import Timeline
from cutlayer.run.worker import OWN
from cutlayer.split.state import client_state, restore_client, restore_server, server_state, under
from cutlayer.wire.hub import Hub
from cutlayer.wire.messages import Ask, Elsewhere, Share, State, SyncUp
from cutlayer.wire.meter import Meter
from cutlayer.wire.metrics import Metrics


class NetworkSession:
    """Training over a hub. Give it what the clients said of their data."""

    def __init__(
        self,
        config: Config,
        hub: Hub,
        clients: Sequence[Any],
        card: Card,
        metrics: Metrics | None = None,
        orders: Orders | None = None,
    ) -> None:
        self.config = config
        self.metrics = metrics
        self.orders = orders
        self.hub = hub
        self._card = card
        self._tests = [ready.test_samples if ready is not None else 0 for ready in clients]
        self.plan = Plan(config.train, card.samples)
        self.reset()

    def reset(self) -> None:
        """Go back to the very beginning."""
        config = self.config
        self._parts = prepare_model(config, self._card.stand_in().train)[1]
        self.server = make_server(config, self._parts)
        self.hub.meter = Meter()
        self.loop = Loop(config, self.plan, self.server, self.hub, self._card.classes)
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

    def card(self) -> Card:
        """The data, without the data."""
        return self._card

    def start(self) -> None:
        """Begin an era with all clients that are ready, each in the state that it had."""
        card, era = self._card, secrets.token_hex(8)
        if self.orders is not None:
            same = digest(settings_for_clients(self.config))
            self.orders.give("Begin", digest=same, step=self.number, era=era)
        spe = self.plan.steps_per_epoch
        welcome: dict[str, Any] = {"mean": card.mean, "std": card.std, "steps_per_epoch": spe}
        if self._among_clients:
            welcome["meeting"] = self.hub.meeting()
        self.hub.begin(self.number, era, **welcome)
        with self._apart():
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
        with self._apart():
            if self.orders is not None:
                self._keep_elsewhere(self.orders)
            for client, found in self._client_states().items():
                tensors |= {f"client.{client}.{name}": t for name, t in found.items()}
            if shares_model(self.config.train) and self.orders is None:
                tensors |= self._buffers() | self._own_states()
        tensors |= self.loop.aggregator.state()
        return tensors, self.loop.state()

    def restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Continue exactly where `state` was taken; clients follow in `start`."""
        number = int(state["number"])
        restore_server(self.server, under("server.", tensors))
        half = make_client(self.config, self._parts)
        for client in range(0 if self.orders is not None else self.config.train.clients):
            owner = 0 if shares_model(self.config.train) else client
            found = _common(under(f"client.{owner}.", tensors))
            if "clients.buffers" in tensors:
                restore_client(half, found, number)
                half.load_buffers(tensors["clients.buffers"][client])
                found = client_state(half)
            own = under(f"client.{client}.{OWN}", tensors)
            found |= {f"{OWN}{name}": tensor for name, tensor in own.items()}
            self._states[client] = to_bytes(found)
        self.loop.aggregator.restore(tensors)
        self.loop.restore(state)

    def _client_states(self) -> dict[int, dict[str, Tensor]]:
        """What clients hold; one is enough if all hold the same. The first stands in for absent ones."""
        if self.orders is not None:
            return {}
        members = self.hub.members()
        everybody = range(self.config.train.clients)
        one_is_enough = shares_model(self.config.train)
        found: dict[int, dict[str, Tensor]] = {}
        while members and not found:
            asked = members[:1] if one_is_enough else members
            self.hub.announce(asked, Ask(self.number, Share.STATE))
            found = {client: self._state_of(client) for client in self.hub.present(asked, 1)}
            members = self.hub.members()
        if not found:
            raise RollbackError("no client is left that could tell its state")
        # What only one client has is nobody else's.
        first = _common(next(iter(found.values())))
        return {0: first} if one_is_enough else {c: found.get(c, first) for c in everybody}

    def _own_states(self) -> dict[str, Tensor]:
        """What each client has for itself where all share a model. One that is absent begins anew."""
        if not self.loop.crossings.feedback and self.config.codec.rate == "fixed":
            return {}
        members = self.hub.members()
        self.hub.announce(members, Ask(self.number, Share.OWN))
        found = {client: self._state_of(client) for client in self.hub.present(members, 1)}
        return {f"client.{client}.{name}": t for client, own in found.items() for name, t in own.items()}

    def _keep_elsewhere(self, orders: Orders) -> None:
        """Have the clients' states kept by the aggregator, before the server's own."""
        members = self.hub.members()
        self.hub.announce(members, Ask(self.number, Share.STATE))
        for client in members:
            message = self.hub.receive(client)
            if not isinstance(message, Elsewhere):
                self.hub.fault(client, MessageError(f"a {type(message).__name__} when asked for its state"))
        orders.give("Keep", step=self.number)

    def _state_of(self, client: int) -> dict[str, Tensor]:
        message = self.hub.receive(client)
        if not isinstance(message, State):
            error = MessageError(
                f"client {client} answered {type(message).__name__} when asked for its state"
            )
            self.hub.fault(client, error)
            raise error
        return from_bytes(message.body)

    def _buffers(self) -> dict[str, Tensor]:
        """Batch-norm statistics: the only thing in which clients differ if they share weights."""
        members = self.hub.members()
        # Clients that average among themselves keep what they share to themselves; a state has it, too.
        self.hub.announce(members, Ask(self.number, Share.STATE if self._among_clients else Share.BUFFERS))
        found = {}
        for client in self.hub.present(members, 1):
            message = self.hub.receive(client)
            if isinstance(message, State):
                half = make_client(self.config, self._parts)
                restore_client(half, from_bytes(message.body), self.number)
                if (buffers := half.buffer_vector()).numel():
                    found[client] = buffers
            elif isinstance(message, SyncUp) and message.frames[1]:
                found[client] = self.loop.crossings.decode(message.frames[1])
        if not found:
            return {}
        first = next(iter(found.values()))
        everybody = range(self.config.train.clients)
        return {"clients.buffers": torch.stack([found.get(client, first) for client in everybody])}

    def _admit(self) -> None:
        """Bring those who come back to the state of those who are there."""
        if self.hub.patient:
            return
        for client in self.hub.newcomers():
            members = self.hub.members()
            if not members:
                raise RollbackError("nobody is left who could tell the present state")
            with self._apart():
                self.hub.send(members[0], Ask(self.number, Share.STATE))
                if not self.hub.present(members[:1], 1, at_least=0):
                    return
                message = self.hub.receive(members[0])
                self._tests[client] = self.hub.test_samples(client)
                self.hub.admit(client, self.number)
                if self.number and isinstance(message, State):
                    body = to_bytes(_common(from_bytes(message.body)))
                    self.hub.send(client, State(message.number, body))
            self.hub.note(f"client {client} is back at step {self.number}")

    @torch.no_grad()
    def _largest(self) -> int:
        """The most elements of any tensor that an honest client sends."""
        train = self.config.train
        x = self._card.preprocess().test(self._card.stand_in().train.images[:1])
        features = 0
        for part in self._parts[: len(self._parts) - 1 or 1]:
            x = part.eval()(x)
            part.train()
            features = max(features, x.numel())
        learned: int = sum(
            t.numel() for part in (self._parts[0], *self._parts[2:]) for t in part.state_dict().values()
        )
        return max(learned, int(features) * max(train.batch_size, train.evaluate_batch))

    @contextmanager
    def _apart(self) -> Iterator[None]:
        """What is sent to keep a run does not count as the traffic of training."""
        training, self.hub.meter = self.hub.meter, Meter()
        try:
            yield
        finally:
            self.hub.meter = training


def _common(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A client's state without what is its own."""
    return {name: tensor for name, tensor in state.items() if not name.startswith(OWN)}
