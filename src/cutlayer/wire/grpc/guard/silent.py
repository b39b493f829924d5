"""Calls whose first message has not come yet: few at a time, each for a short while.

Whoever begins a call and says nothing holds a place that others need. So places for silent calls are never
refused but taken over: where there are too many, the newest replaces the oldest of the peer that has most of
them. An honest call is silent for one round trip; to push it out, a peer has to begin more calls than there
are places within that time, and then it pushes out its own first.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable
from typing import Any, TypeVar
from urllib.parse import unquote

T = TypeVar("T")


class ReplacedError(Exception):
    """A newer call has taken the place of a silent one."""


class Silent:
    """Silent calls by peer: `total` at a time, and of those that have proved who they are, `named` each."""

    def __init__(self, total: int, named: int = 4) -> None:
        self.total = total
        self.named = named
        self._calls: dict[str, OrderedDict[int, asyncio.Future[None]]] = {}
        self._numbers = 0

    def __len__(self) -> int:
        return sum(map(len, self._calls.values()))

    async def first(self, call: Awaitable[T], seconds: float, host: str, name: str | None = None) -> T:
        """What the call reads first. Raises TimeoutError, or ReplacedError if a newer call took its place."""
        peer = host if name is None else f"name {name}"
        self._make_room(peer, self.total if name is None else self.named)
        self._numbers += 1
        number = self._numbers
        replaced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._calls.setdefault(peer, OrderedDict())[number] = replaced
        reading = asyncio.ensure_future(call)
        try:
            await asyncio.wait((reading, replaced), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                return reading.result()
            if replaced.done():
                raise ReplacedError("too many calls are silent; a newer one has taken the place of this one")
            raise TimeoutError
        finally:
            reading.cancel()
            calls = self._calls.get(peer)
            if calls is not None:
                calls.pop(number, None)
                if not calls:
                    del self._calls[peer]

    def _make_room(self, peer: str, most: int) -> None:
        own = self._calls.get(peer)
        if own is not None and len(own) >= most:
            self._replace(peer)
        elif len(self) >= self.total:
            self._replace(max(self._calls, key=lambda each: len(self._calls[each])))

    def _replace(self, peer: str) -> None:
        calls = self._calls[peer]
        _, oldest = calls.popitem(last=False)
        oldest.set_result(None)
        if not calls:
            del self._calls[peer]


def host_of(context: Any) -> str:
    """The address that a call comes from, without its port.

    >>> host_of(type("", (), {"peer": lambda self: "ipv6:%5B::1%5D:4711"})())
    '::1'
    """
    return split_peer(context.peer())[0]


def split_peer(peer: str) -> tuple[str, int]:
    """Address and port of what gRPC calls a peer, as `ipv4:127.0.0.1:4711`. Others have the port 0."""
    kind, _, rest = unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdecimal():
        return peer, 0
    return host.strip("[]").removeprefix("::ffff:"), int(port)
