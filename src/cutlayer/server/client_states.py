"""The states of clients that are elsewhere: asked for at a checkpoint, and given back from one.

They are stored as a run in one process stores its own: one state where all clients share a model, with the
batch-norm statistics of each, and whatever else is a client's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cutlayer.aggregation.remote import Orders
from cutlayer.client.split_client import OWN
from cutlayer.config.schema import Config
from cutlayer.errors import MessageError, RollbackError
from cutlayer.protocol.build import make_client, shares_model
from cutlayer.protocol.run_codecs import Crossings
from cutlayer.protocol.state_bytes import from_bytes, to_bytes
from cutlayer.split import Part
from cutlayer.split.state import client_state, restore_client, under
from cutlayer.wire.grpc.transport import Hub
from cutlayer.wire.messages.types import Ask, Elsewhere, Share, State, SyncUp


def common(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A client's state without what is its own."""
    return {name: tensor for name, tensor in state.items() if not name.startswith(OWN)}


def from_checkpoint(
    config: Config, parts: tuple[Part, ...], tensors: Mapping[str, Tensor], number: int
) -> dict[int, bytes]:
    """What each client has to get back after `number` steps."""
    states = {}
    half = make_client(config, parts)
    for client in range(config.train.clients):
        owner = 0 if shares_model(config.train) else client
        found = common(under(f"client.{owner}.", tensors))
        if "clients.buffers" in tensors:
            restore_client(half, found, number)
            half.load_buffers(tensors["clients.buffers"][client])
            found = client_state(half)
        own = under(f"client.{client}.{OWN}", tensors)
        found |= {f"{OWN}{name}": tensor for name, tensor in own.items()}
        states[client] = to_bytes(found)
    return states


def keep_elsewhere(hub: Hub, orders: Orders, number: int) -> None:
    """Have the clients' states kept by the aggregator, before the server's own."""
    members = hub.members()
    hub.announce(members, Ask(number, Share.STATE))
    for client in members:
        message = hub.receive(client)
        if not isinstance(message, Elsewhere):
            hub.fault(client, MessageError(f"a {type(message).__name__} when asked for its state"))
    orders.give("Keep", step=number)


@dataclass
class Asking:
    """Asks the members of a run for what a checkpoint after `number` steps needs of them."""

    config: Config
    hub: Hub
    parts: tuple[Part, ...]
    crossings: Crossings
    number: int

    def tensors(self) -> dict[str, Tensor]:
        """All of it, by the names that it has in a checkpoint."""
        found: dict[str, Tensor] = {}
        for client, state in self._states().items():
            found |= {f"client.{client}.{name}": t for name, t in state.items()}
        if shares_model(self.config.train):
            found |= self._buffers() | self._own_states()
        return found

    def _states(self) -> dict[int, dict[str, Tensor]]:
        """What clients hold; one is enough if all hold the same. The first stands in for absent ones."""
        members = self.hub.members()
        everybody = range(self.config.train.clients)
        one_is_enough = shares_model(self.config.train)
        found: dict[int, dict[str, Tensor]] = {}
        while members and not found:
            found = self._ask(members[:1] if one_is_enough else members, Share.STATE)
            members = self.hub.members()
        if not found:
            raise RollbackError("no client is left that could tell its state")
        # What only one client has is nobody else's.
        first = common(next(iter(found.values())))
        return {0: first} if one_is_enough else {c: found.get(c, first) for c in everybody}

    def _own_states(self) -> dict[str, Tensor]:
        """What each client has for itself where all share a model. One that is absent begins anew."""
        if not self.crossings.feedback and not self.config.codec.follows_link:
            return {}
        found = self._ask(self.hub.members(), Share.OWN)
        return {f"client.{client}.{name}": t for client, own in found.items() for name, t in own.items()}

    def _ask(self, clients: Sequence[int], what: Share) -> dict[int, dict[str, Tensor]]:
        """The states of those who answer."""
        self.hub.announce(clients, Ask(self.number, what))
        return {client: self._state_of(client) for client in self.hub.present(clients, 1)}

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
        among = self.config.train.aggregation == "allreduce"
        self.hub.announce(members, Ask(self.number, Share.STATE if among else Share.BUFFERS))
        found = {}
        for client in self.hub.present(members, 1):
            message = self.hub.receive(client)
            if isinstance(message, State):
                half = make_client(self.config, self.parts)
                restore_client(half, from_bytes(message.body), self.number)
                if (buffers := half.buffer_vector()).numel():
                    found[client] = buffers
            elif isinstance(message, SyncUp) and message.frames[1]:
                found[client] = self.crossings.decode(message.frames[1])
        if not found:
            return {}
        first = next(iter(found.values()))
        everybody = range(self.config.train.clients)
        return {"clients.buffers": torch.stack([found.get(client, first) for client in everybody])}
