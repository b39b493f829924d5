"""Clients that are elsewhere, and come and go.

They keep nothing on disk. At a checkpoint they send their state, and it is stored as a run in one process
stores it, so that everything that reads a run reads this one, too. When the run goes on from a checkpoint
each client gets its state back.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from torch import Tensor

from cutlayer.aggregation.orders import Orders
from cutlayer.data.spec import DataSpec
from cutlayer.errors import AbsentError, RollbackError
from cutlayer.protocol.boundary import Agreed, Boundary
from cutlayer.protocol.plan import Plan
from cutlayer.protocol.run_codecs import RunCodecs
from cutlayer.protocol.state_bytes import to_bytes
from cutlayer.server.client_states import ClientStates, common
from cutlayer.split.client import ClientHalf
from cutlayer.wire.grpc.transport import GrpcTransport
from cutlayer.wire.messages.types import Ask, Placeholder, Share, State


class RemoteClients:
    """The clients of a run over the network."""

    def __init__(
        self,
        transport: GrpcTransport,
        data_spec: DataSpec,
        test_samples: Sequence[int],
        codecs: RunCodecs,
        agreed: Agreed,
        make_half: Callable[[], ClientHalf],
        *,
        shared_model: bool,
        own_states: bool,
        digest: str,
        steps_per_epoch: int,
        largest_message: int,
        orders: Orders | None = None,
        among_clients: bool = False,
        plan: Plan | None = None,
        stateless: bool = False,
    ) -> None:
        """`make_half` builds a client's half as clients do, to read their states.

        `shared_model`: all hold the same weights at every step. `own_states`: each has something of its own
        beside them. `orders` go to an aggregator that runs alone and keeps what clients learn;
        `among_clients`: nothing that they share comes here. `plan`: clients keep nothing between rounds, and
        may join at any time; the plan is told. `stateless`: clients keep nothing that a newcomer would
        have to be told.
        """
        self.data_spec = data_spec
        self.transport = transport
        # The run is at its beginning, perhaps not for the first time; a checkpoint says what counts.
        transport.meter.restore({})
        self._tests = list(test_samples)
        self._boundary = Boundary(transport, codecs, agreed)
        self._client_states = ClientStates(
            transport,
            self._boundary,
            make_half,
            shared_model=shared_model,
            own_states=own_states,
            buffers_by_state=among_clients,
        )
        self._digest = digest
        self._steps_per_epoch = steps_per_epoch
        self._largest_message = largest_message
        self._orders = orders
        self._among_clients = among_clients
        self._plan = plan
        self._stateless = stateless
        self._restored: dict[int, bytes] = {}
        self._number = 0
        """The step before which newcomers were let in last."""

    def begin(self, number: int) -> None:
        """See `ClientPool.begin`. A new era, with all clients that are ready."""
        spec, era = self.data_spec, secrets.token_hex(8)
        if self._orders is not None:
            self._orders.give("Begin", digest=self._digest, step=number, era=era)
        welcome: dict[str, Any] = {
            "mean": spec.mean,
            "std": spec.std,
            "steps_per_epoch": self._steps_per_epoch,
        }
        if self._among_clients:
            welcome["meeting"] = self.transport.rendezvous()
        self._number = number
        if self._plan is not None:
            for client in self.transport.newcomers():
                self._join(self._plan, client)
            self.transport.begin(number, era, largest_message=self._largest_message, **welcome)
            return
        self.transport.begin(number, era, largest_message=self._largest_message, **welcome)
        with self.transport.meter.apart():
            for client in self.transport.members() if number else ():
                if self._orders is not None:
                    self.transport.send(client, Placeholder(number))
                elif not self._stateless:
                    self.transport.send(client, State(number, self._restored[client]))
        self._restored = {}

    def admit_newcomers(self, number: int) -> Sequence[int]:
        """See `ClientPool.admit_newcomers`. They get the state of those who are there, if they need it."""
        if self._plan is not None:
            return self._admit_for_rounds(self._plan, number)
        newcomers = self.transport.newcomers()
        for client in newcomers:
            with self.transport.meter.apart():
                state = {} if self._stateless else self._present_state(number)
                if state is None:
                    return ()
                self._tests[client] = self.transport.test_samples(client)
                self.transport.admit(client, number)
                if number and not self._stateless:
                    self.transport.send(client, State(number, to_bytes(common(state))))
            self.transport.note(f"{self.transport.label(client)} is back at step {number}")
        return newcomers

    def _admit_for_rounds(self, plan: Plan, number: int) -> Sequence[int]:
        """Let newcomers in, who need nothing from others.

        A round begins when the quorum is there; under `wait`, when all are there who were drawn for it. Only
        they hold something until it ends.
        """
        self._number = number
        patient, transport = self.transport.patient, self.transport
        first = plan.round(number)[1]
        drawn = plan.sampled(first) if patient else ()
        if first != number:
            transport.need(drawn)
            return self._admit(plan)
        transport.need(())
        admitted: list[int] = []
        while True:
            transport.let_go()
            admitted += self._admit(plan)
            if transport.all_there(drawn) if patient else transport.has_quorum():
                transport.need(drawn)
                return admitted

    def _admit(self, plan: Plan) -> Sequence[int]:
        newcomers = self.transport.newcomers()
        for client in newcomers:
            self._join(plan, client)
            self.transport.admit(client, self._number)
        return newcomers

    def _join(self, plan: Plan, client: int) -> None:
        """Take down what a client has said of its data, new ones if it was not there at the beginning."""
        ready = self.transport.ready_of(client)
        if ready is not None:
            self._tests[client] = int(ready.test_samples)
            if not self.data_spec.samples[client]:
                plan.join(client, int(ready.samples))

    def _present_state(self, number: int) -> dict[str, Tensor] | None:
        """What the first member that answers as it should has learned; None if none does in time."""
        members = self.transport.members()
        if not members:
            raise RollbackError("nobody is left who could tell the present state")
        for member in members:
            self.transport.send(member, Ask(number, Share.STATE))
            if self.transport.present([member], 1, at_least=0):
                with suppress(AbsentError):
                    return self._boundary.state(member, number)
        return None

    def evaluator(self) -> tuple[int, int] | None:
        """See `ClientPool.evaluator`. The first that has a test set."""
        if self._plan is not None and self.transport.patient:
            return self._await_evaluator(self._plan)
        for client in self.transport.members():
            if self._tests[client]:
                return client, self._tests[client]
        return None

    def _await_evaluator(self, plan: Plan) -> tuple[int, int] | None:
        """The first of all clients that has a test set, also if it has to come back first."""
        for client, samples in enumerate(self._tests):
            if samples:
                while not self.transport.all_there([client]):
                    self.transport.let_go()
                    self._admit(plan)
                return client, samples
        return None

    def state(self, number: int) -> dict[str, Tensor]:
        """See `ClientPool.state`. An aggregator that runs alone keeps what clients have learned itself."""
        with self.transport.meter.apart():
            if self._orders is None:
                return self._client_states.ask(number)
            members = self.transport.members()
            self.transport.announce(members, Ask(number, Share.STATE))
            for client in members:
                self._boundary.receive(client, number, Placeholder)
            self._orders.give("Keep", step=number)
            return {}

    def restore(self, tensors: Mapping[str, Tensor], number: int) -> None:
        """See `ClientPool.restore`. Clients get their states when they `begin`."""
        if self._orders is None:
            self._restored = self._client_states.from_checkpoint(tensors, number)

    def rolled_back(self, number: int, reason: str) -> None:
        """See `ClientPool.rolled_back`."""
        transport = self.transport
        transport.log("rollback", None, "warning", step=number, reason=reason)
        transport.note(f"{reason}; going back to step {number}")
        transport.dismiss("AGAIN", f"the run goes on from step {number}: {reason}")
        transport.assemble(None if transport.patient else transport.policy.quorum)
