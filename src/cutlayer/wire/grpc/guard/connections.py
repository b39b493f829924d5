"""Connections that have not shown a good credential: few, and the oldest go first.

gRPC bounds connections in all, and closes new ones beyond the bound: whoever fills it keeps everybody out. It
has no way to close old ones. But they are sockets of this process. So a task looks at them, as Linux lists
them in /proc/self/fd, and when there are too many of unknown peers it shuts down the oldest of the host that
has most. gRPC then sees connections that their peers have closed. On other systems only the deadline of
handshakes and the bound of all connections hold.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import socket
import stat
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cutlayer.wire import log
from cutlayer.wire.grpc.guard.silent import split_peer
from cutlayer.wire.limits import Limits

_DESCRIPTORS = Path("/proc/self/fd")
_EVERY = 0.05
# How much longer the pause is than a count of descriptors, up to so many seconds; and after how many seconds
# known connections are looked at again.
_COUNTING, _LONGEST, _AGAIN = 40, 0.2, 1.0
#: Files that the process needs for other things than connections.
_RESERVED = 256

Peer = tuple[str, int]


@dataclass
class _Seen:
    peer: Peer | None
    """None for sockets of other kinds."""
    since: int


class Connections:
    """The connections to a server's port. Use it in `async with`, with `port` set."""

    def __init__(self, limits: Limits) -> None:
        self.port = 0
        self._unknown = min(limits.unknown, connections_at_most(limits) // 4)
        self._known: dict[Peer, int] = {}
        self._seen: dict[int, _Seen] = {}
        self._looks = 0
        self._looked = 0.0
        self._task: asyncio.Task[None] | None = None

    def admitted(self, peer: str) -> None:
        """The peer, as gRPC writes it, has shown a good credential."""
        self._known[split_peer(peer)] = self._looks

    async def __aenter__(self) -> Connections:
        if _DESCRIPTORS.is_dir():
            self._task = asyncio.create_task(self._watch(), name="connections")
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            began, counted = time.monotonic(), 0.0
            with suppress(OSError):  # no descriptor is free to look with; the next look may have one
                number = _open_descriptors()
                counted = time.monotonic() - began
                if self._suspicious(number, began):
                    closed = await asyncio.to_thread(self._look, _descriptors())
                    if closed:
                        log.event("connections-closed", "warning", number=closed)
            # However many there are, it takes a third of one processor at most; a fortieth if all are known.
            spent = time.monotonic() - began
            await asyncio.sleep(max(_EVERY, 2 * spent, min(_COUNTING * counted, _LONGEST)))

    def _suspicious(self, descriptors: int, now: float) -> bool:
        """Whether there may be too many connections of unknown peers."""
        if descriptors - len(self._known) > self._unknown or len(self._known) > 2 * self._unknown:
            self._looked = now
            return True
        # Some of the known ones may have left: a look now and then tells.
        if descriptors > self._unknown and now - self._looked > _AGAIN:
            self._looked = now
            return True
        return False

    def _look(self, descriptors: list[int]) -> int:
        """Close what is too much; how many that were."""
        self._looks += 1
        unknown = self._find(descriptors)
        excess = sum(map(len, unknown.values())) - self._unknown
        return sum(self._close(descriptor) for descriptor in _oldest_of_most(unknown, excess))

    def _find(self, descriptors: list[int]) -> dict[str, list[tuple[int, int]]]:
        """Connections of peers that are not known, by host: since when, and the descriptor."""
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        seen: dict[int, _Seen] = {}
        for descriptor in descriptors:
            with suppress(OSError):
                about = os.fstat(descriptor)
                if not stat.S_ISSOCK(about.st_mode):
                    continue
                one = self._seen.get(about.st_ino)
                if one is None:
                    one = _Seen(self._peer(descriptor), self._looks)
                seen[about.st_ino] = one
                if one.peer is not None and one.peer not in self._known:
                    found[one.peer[0]].append((one.since, descriptor))
        self._seen = seen
        live = {one.peer for one in seen.values()}
        # Those that were admitted since this look began are not in it yet. Others may be admitted meanwhile.
        for peer, at in list(self._known.items()):
            if peer not in live and at < self._looks - 1:
                self._known.pop(peer, None)
        return found

    def _peer(self, descriptor: int) -> Peer | None:
        """Who is at the other end of a connection to our port; None for all other sockets."""
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as copy:
            if copy.family in (socket.AF_INET, socket.AF_INET6) and copy.getsockname()[1] == self.port:
                host, port = copy.getpeername()[:2]
                return host.removeprefix("::ffff:"), port
        return None

    def _close(self, descriptor: int) -> bool:
        # A copy of the descriptor: gRPC may close its own meanwhile, and the number belong to another file.
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as copy:
            peer = copy.getpeername()[:2]
            if (
                copy.getsockname()[1] == self.port
                and (peer[0].removeprefix("::ffff:"), peer[1]) not in self._known
            ):
                copy.shutdown(socket.SHUT_RDWR)
                return True
        return False


def _open_descriptors() -> int:
    """How many files this process has open. Linux says so since 6.2; before that they are listed."""
    return os.stat(_DESCRIPTORS).st_size or len(_descriptors())  # noqa: PTH116, less work, twenty times a second


def _descriptors() -> list[int]:
    """The open files of this process."""
    return [int(name) for name in os.listdir(_DESCRIPTORS)]  # noqa: PTH208, ten times faster


def _oldest_of_most(hosts: dict[str, list[tuple[int, int]]], number: int) -> list[int]:
    """So many connections to close: always the oldest of the host that has most left."""
    queues = {host: sorted(each, reverse=True) for host, each in hosts.items()}
    heap = [(-len(each), host) for host, each in queues.items()]
    heapq.heapify(heap)
    chosen = []
    for _ in range(number):
        count, host = heap[0]
        chosen.append(queues[host].pop()[1])
        heapq.heapreplace(heap, (count + 1, host))
    return chosen


def connections_at_most(limits: Limits) -> int:
    """The bound of all connections: the limit's, or as many as the system lets this process have open.

    Raises the soft limit of the system where it may. Without descriptors a server could not write its
    checkpoints.
    """
    try:
        import resource
    except ImportError:  # not Unix
        return limits.connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.connections + _RESERVED
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    if soft == resource.RLIM_INFINITY:
        return limits.connections
    return max(16, min(limits.connections, soft - _RESERVED))
