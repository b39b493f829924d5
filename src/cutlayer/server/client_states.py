"""The states of clients that are elsewhere: asked for at a checkpoint, and given back from one.

They are stored as a run in one process stores its own: one state where all clients share a model, with the
batch-norm statistics of each, and whatever else is a client's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from cutlayer.errors import AbsentError, CheckpointError, RollbackError
from cutlayer.protocol.boundary import Boundary
from cutlayer.protocol.state_bytes import OWN, to_bytes
from cutlayer.split.client import ClientHalf
from cutlayer.split.state import client_state, restore_client, under
from cutlayer.wire.grpc.transport import GrpcTransport
from cutlayer.wire.messages.types import Ask, Share

T = TypeVar("T")


def common(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A client's state without what is its own."""
    return {name: tensor for name, tensor in state.items() if not name.startswith(OWN)}


class ClientStates:
    """What clients hold, between their messages and a checkpoint."""

    def __init__(
        self,
        transport: GrpcTransport,
        boundary: Boundary,
        make_half: Callable[[], ClientHalf],
        *,
        shared_model: bool,
        own_states: bool,
        buffers_by_state: bool,
    ) -> None:
        """`buffers_by_state`: clients keep what they share to themselves; a state has buffers, too."""
        self._transport = transport
        self._boundary = boundary
        self._make_half = make_half
        self._shared_model = shared_model
        self._own_states = own_states
        self._buffers_by_state = buffers_by_state

    def ask(self, number: int) -> dict[str, Tensor]:
        """Ask the members for what a checkpoint after `number` steps needs of them."""
        found: dict[str, Tensor] = {}
        for client, state in self._models(number).items():
            found |= {f"client.{client}.{name}": t for name, t in state.items()}
        if self._shared_model:
            found |= self._buffers(number)
            if self._own_states:
                found |= self._own(number)
        return found

    def from_checkpoint(self, tensors: Mapping[str, Tensor], number: int) -> dict[int, bytes]:
        """What each client has to get back after `number` steps."""
        states = {}
        half = self._make_half()
        for client in range(self._transport.clients):
            owner = 0 if self._shared_model else client
            found = common(under(f"client.{owner}.", tensors))
            try:
                restore_client(half, found, number)
                if "clients.buffers" in tensors:
                    half.load_buffers(tensors["clients.buffers"][client])
                    found = client_state(half)
            except (CheckpointError, LookupError, RuntimeError, ValueError) as error:
                raise CheckpointError(
                    f"the state of {self._transport.label(owner)} cannot be restored ({error})"
                ) from error
            own = under(f"client.{client}.{OWN}", tensors)
            found |= {f"{OWN}{name}": tensor for name, tensor in own.items()}
            states[client] = to_bytes(found)
        return states

    def _models(self, number: int) -> dict[int, dict[str, Tensor]]:
        """What clients hold; one is enough if all hold the same. The first stands in for absent ones."""
        members = self._transport.members()
        found: dict[int, dict[str, Tensor]] = {}
        while members and not found:
            found = self._states(members[:1] if self._shared_model else members, Share.STATE, number)
            members = self._transport.members()
        if not found:
            raise RollbackError("no client is left that could tell its state")
        # What only one client has is nobody else's.
        first = common(next(iter(found.values())))
        if self._shared_model:
            return {0: first}
        return {client: found.get(client, first) for client in range(self._transport.clients)}

    def _own(self, number: int) -> dict[str, Tensor]:
        """What each client has for itself where all share a model. One that is absent begins anew."""
        found = self._each(
            self._transport.members(),
            Share.OWN,
            number,
            lambda client, number: self._boundary.state(client, number, complete=False),
        )
        return {f"client.{client}.{name}": t for client, own in found.items() for name, t in own.items()}

    def _states(self, clients: Sequence[int], what: Share, number: int) -> dict[int, dict[str, Tensor]]:
        """The states of those who answer, and answer as they should."""
        return self._each(clients, what, number, self._boundary.state)

    def _buffers(self, number: int) -> dict[str, Tensor]:
        """Batch-norm statistics: the only thing in which clients differ if they share weights."""
        members = self._transport.members()
        found: dict[int, Tensor | None]
        if self._buffers_by_state:
            found = {}
            for client, state in self._states(members, Share.STATE, number).items():
                half = self._make_half()
                restore_client(half, state, number)
                found[client] = half.buffer_vector()
        else:
            found = self._each(members, Share.BUFFERS, number, self._boundary.buffers)
        present = {c: vector for c, vector in found.items() if vector is not None and vector.numel()}
        if not present:
            return {}
        first = next(iter(present.values()))
        everybody = range(self._transport.clients)
        return {"clients.buffers": torch.stack([present.get(client, first) for client in everybody])}

    def _each(
        self, clients: Sequence[int], what: Share, number: int, receive: Callable[[int, int], T]
    ) -> dict[int, T]:
        self._transport.announce(clients, Ask(number, what))
        found = {}
        for client in self._transport.present(clients, 1):
            try:
                found[client] = receive(client, number)
            except AbsentError:
                continue
        return found
