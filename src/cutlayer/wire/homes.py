"""Which rank of a server has which clients, and at which address clients find it.

Ranks have blocks of consecutive clients, so that a sum over ranks in their order is one in client order.
"""

from __future__ import annotations

from collections.abc import Sequence

from cutlayer.errors import MovedError, NotNowError


class Homes:
    """The clients of one rank, and the addresses of all. `place` is that of this rank, from 0 of `world`."""

    def __init__(self, clients: int, place: int, world: int) -> None:
        self.clients = clients
        self.place = place
        self.world = world
        self.own = tuple(client for client in range(clients) if self.place_of(client) == place)
        self._addresses: tuple[str, ...] = ()

    def place_of(self, client: int) -> int:
        """The rank that has a client.

        >>> [Homes(5, 0, 2).place_of(client) for client in range(5)]
        [0, 0, 0, 1, 1]
        """
        return client * self.world // self.clients

    def publish(self, addresses: Sequence[str]) -> None:
        """All ranks listen now, at these addresses in the order of their places."""
        self._addresses = tuple(addresses)

    def check(self, client: int) -> None:
        """Raise `MovedError` with the address of its rank, if a client is not this rank's."""
        if client not in self.own:
            raise self._moved(self.place_of(client), f"client {client} is that of another rank")

    def next(self) -> MovedError:
        """For a client without a number, where this rank has no place left: another rank may have one."""
        return self._moved((self.place + 1) % self.world, "all clients of this rank are connected")

    def _moved(self, place: int, why: str) -> MovedError:
        if not self._addresses:
            raise NotNowError("the ranks of this server are still coming together")
        address = self._addresses[place]
        return MovedError(f"{why}; call {address}", address)
