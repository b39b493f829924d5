"""Rounds in which only a sample of the clients takes part (`train.clients_per_step`).

The server keeps the clients' half of the model itself. At the beginning of a round those who take part get it
(State); at its end the mean of what they learned updates it. So clients keep nothing between rounds, one that
is not asked costs nothing but its connection, and one that is new needs nothing from the others.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from torch import Tensor

from cutlayer.aggregation.at_server import ServerRound
from cutlayer.aggregation.base import Round
from cutlayer.errors import AbsentError, CheckpointError
from cutlayer.protocol.plan import Plan, Step
from cutlayer.protocol.state_bytes import to_bytes
from cutlayer.server.client_pool import ClientPool
from cutlayer.server.modes import ServerWork
from cutlayer.server.participation import Participation
from cutlayer.server.step_io import Parties
from cutlayer.split.client import ClientHalf
from cutlayer.split.state import client_state, restore_client, under
from cutlayer.wire.messages.types import GRADIENTS, Ask, Share, State, SyncUp

#: How the names of what the server keeps begin in a checkpoint; behind it are those of clients in a round.
COMMON = "clients.common."
# What an optimizer remembers: clients of a round begin without.
_MEMORY = ("optimizer.", "waiting.")


class SampledRounds(Participation):
    """The rounds of a run, and the half of the model that clients get at the beginning of each."""

    def __init__(
        self, half: ClientHalf, work: ServerWork, parties: Parties, plan: Plan, clients: ClientPool
    ) -> None:
        """`half` is nobody else's: it is updated here."""
        # A round begins with the quorum; who leaves in the middle of it does not hold up the others.
        super().__init__(work, replace(parties, at_least=0), plan, clients)
        self.half = half
        self.clients: tuple[int, ...] = ()
        """Who takes part in the present round."""
        self._transport = parties.transport
        self._holding: set[int] = set()
        """Those of them who have been sent what the round begins with."""
        self._unsent: dict[int, bytes] = {}
        """The states of clients in the middle of a round that goes on after a checkpoint."""
        self._number: int | None = None
        """The number of the round's first step."""

    def admit(self, number: int) -> Sequence[int]:
        """See `Participation.admit`. They have nothing, and take part from the next round on."""
        newcomers = self._clients.admit_newcomers(number)
        self._holding -= set(newcomers)
        return newcomers

    def begin_step(self, number: int) -> tuple[Step, int]:
        """See `Participation.begin_step`. In the first step of a round they get the clients' half."""
        first = self._plan.round(number)[1]
        if self._number != first:
            self._number, self._holding = first, set()
            among = None if self._transport.patient else self._transport.reachable()
            self.clients = self._plan.sampled(number, among)
        elif not self._transport.patient:
            members = set(self._transport.members())
            self.clients = tuple(client for client in self.clients if client in members)
        self.send_unsent(number)
        wanting = [client for client in self.clients if client not in self._holding]
        if not wanting or number != first:
            self.clients = tuple(c for c in self.clients if c in self._holding)
            return self._plan.at(number, self.clients), 0
        state = State(number, to_bytes(self._shown()))
        self._transport.announce(wanting, state)
        self._holding.update(wanting)
        return self._plan.at(number, self.clients), state.size

    def send_unsent(self, number: int) -> None:
        """After a checkpoint in the middle of a round: give those who take part the states that they had."""
        with self._transport.meter.apart():
            for client, state in self._unsent.items():
                self._transport.send(client, State(number, state))
        self._holding.update(self._unsent)
        self._unsent = {}

    def between(self, number: int) -> bool:
        """Whether all that was learned is here: the step of this number begins a round, or nobody is left."""
        return self._plan.round(number)[1] == number or not set(self.clients) & set(self._transport.members())

    def deliver(self, mean: Round, step: Step) -> tuple[Sequence[int], int]:
        """See `Participation.deliver`. A round ends: what its clients learned is taken over here."""
        if not isinstance(mean, ServerRound):
            raise TypeError("rounds with a sample of the clients need the server to average")
        first, second = mean.result()
        if first is not None:
            self._take(first, step)
        if second is not None:
            self.half.load_buffers(second)
        return (), 0

    def kept(self, number: int) -> SyncUp | None:
        """See `Participation.kept`. Between two rounds it is here."""
        if not self.between(number):
            return None
        codecs = self.parties.codecs
        first, second = codecs.plain(self.half.weight_vector()), codecs.plain(self.half.buffer_vector())
        return SyncUp(number, first + second, Share.WEIGHTS, len(first))

    def holders(self, number: int, holder: int) -> tuple[Sequence[int], Share]:
        """See `Participation.holders`."""
        self.send_unsent(number)
        return self.clients, Share.WEIGHTS

    def state(self, number: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """See `Participation.state`: the half that is kept here; in the middle of a round, clients' own."""
        tensors = {f"{COMMON}{name}": t for name, t in client_state(self.half).items()}
        if self.between(number):
            return tensors, {"round": {}}
        with self._transport.meter.apart():
            self.send_unsent(number)
            clients = [client for client in self.clients if client in self._holding]
            self._transport.announce(clients, Ask(number, Share.STATE))
            for client in self._transport.present(clients, 1):
                with suppress(AbsentError):  # it is out of the round
                    state = self.parties.boundary.state(client, number)
                    tensors |= {f"client.{client}.{name}": t for name, t in state.items()}
        return tensors, {"round": {"first": self._number, "clients": list(self.clients)}}

    def restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any], number: int) -> None:
        """See `Participation.restore`."""
        common = under(COMMON, tensors)
        if not common:
            raise CheckpointError(
                "the checkpoint is of a run in which every client takes part; continue it without "
                "train.clients_per_step"
            )
        restore_client(self.half, common, number)
        begun = state.get("round", {})
        self._number = int(begun["first"]) if begun else None
        self.clients = tuple(map(int, begun.get("clients", ())))
        found = {client: under(f"client.{client}.", tensors) for client in self.clients}
        self._holding, self._unsent = set(), {c: to_bytes(own) for c, own in found.items() if own}

    def _shown(self) -> dict[str, Tensor]:
        """What clients get of the half: all but what its optimizer remembers."""
        return {n: t for n, t in client_state(self.half).items() if not n.startswith(_MEMORY)}

    def _take(self, vector: Tensor, step: Step) -> None:
        if step.share in GRADIENTS:
            self.half.apply_mean(lambda: vector, step.lr, step.number)
        elif step.share == Share.DIFFERENCES:
            self.half.add_differences(vector)
        else:
            self.half.load_weights(vector)
