"""An event loop in a thread of its own: the network goes on while the main thread computes."""

from __future__ import annotations

import asyncio
import atexit
import errno
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
# Bytes that are taken at once.
_WAKES = 4096


class _NetworkLoop(asyncio.SelectorEventLoop):
    """A loop that gRPC wakes once for many messages.

    gRPC writes a byte to a socket for each message that has come or gone, and its reader takes one byte, but
    all messages. So a hundred clients that answer together would wake the loop ninety-nine times for nothing.
    """

    def add_reader(self, fd: Any, callback: Callable[[*Ts], Any], *args: *Ts) -> None:
        """See `asyncio.loop.add_reader`. Of a socket, all waiting bytes but one are taken before the call."""
        if not isinstance(fd, socket.socket):
            return super().add_reader(fd, callback, *args)

        def read_ahead() -> None:
            with suppress(BlockingIOError):
                waiting = len(fd.recv(_WAKES, socket.MSG_PEEK))
                if waiting > 1:
                    fd.recv(waiting - 1)
            callback(*args)

        return super().add_reader(fd, read_ahead)


class Background:
    """The loop. Begin work with `start`, or wait for it with `run`."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = _NetworkLoop()
        self.loop.set_exception_handler(_without_poller)
        self._calls: list[Callable[[], object]] = []
        self._calls_lock = threading.Lock()
        self._thread = threading.Thread(target=self._turn, name="cutlayer-network", daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin the work on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Do the work on the loop and wait for it."""
        return self.start(work).result(timeout)

    def soon(self, function: Callable[[], object]) -> None:
        """Call a function on the loop, from any thread. Nothing happens after the end."""
        # Waking the loop is a system call: one is enough for all calls that it has not seen yet.
        with self._calls_lock:
            self._calls.append(function)
            asleep = len(self._calls) == 1
        if asleep and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._call)

    def end(self) -> None:
        """Stop the loop, at the end of the process."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(5)

    def _call(self) -> None:
        with self._calls_lock:
            calls, self._calls = self._calls, []
        for call in calls:
            call()

    def _turn(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


def _without_poller(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Leave out what gRPC's poller complains of when its last object goes, or somebody else was faster."""
    error = context.get("exception")
    if not (isinstance(error, OSError) and error.errno in (errno.EBADF, errno.EAGAIN)):
        loop.default_exception_handler(context)


def background() -> Background:
    """The one loop of this process, started at its first use.

    gRPC's asyncio side has one poller a process, which breaks when one of several loops is closed.
    """
    # A server and a client in two threads may ask at the same time, and `cache` would start a loop for each.
    with _starting:
        return _started()


_starting = threading.Lock()


@cache
def _started() -> Background:
    found = Background()
    atexit.register(found.end)
    return found
