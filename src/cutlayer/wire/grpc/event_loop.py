"""An event loop in a thread of its own: the network goes on while the main thread computes."""

from __future__ import annotations

import asyncio
import atexit
import errno
import selectors
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
# Bytes that are taken at once.
_WAKES = 4096
# How long a resting loop waits for further messages: this share of the time since somebody last called it,
# and so many seconds at most.
_SHARE, _LONGEST = 0.1, 0.02


class _RestingSelector(selectors.DefaultSelector):
    """Waits for sockets. While `resting`, the first of them has to wait for a moment, so that more come.

    This is the interrupt moderation of network cards. To wake a thread for one message costs several times
    what the message itself does; a hundred clients that answer one after another would wake it for each.
    """

    def __init__(self) -> None:
        super().__init__()
        self.resting = 0
        """How many have asked for it."""
        self.called = threading.Event()
        """Whether another thread wants the loop to do something, which ends a rest."""
        self._since = time.monotonic()

    def answered(self) -> None:
        """The loop does what another thread wants: in most cases, to send what clients will answer."""
        self.called.clear()
        self._since = time.monotonic()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """See `selectors.BaseSelector.select`."""
        found = super().select(timeout)
        if not (self.resting and found) or timeout == 0 or self.called.is_set():
            return found
        self.called.wait(min(_SHARE * (time.monotonic() - self._since), _LONGEST))
        return super().select(0)


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
        self._selector = _RestingSelector()
        self.loop: asyncio.AbstractEventLoop = _NetworkLoop(self._selector)
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
            self._selector.called.set()
            self.loop.call_soon_threadsafe(self._call)

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Inside, messages are taken in groups, for servers of many clients. Each may wait for 20 ms.

        It waits for a tenth of the time at most that has passed since something was last sent.
        """
        self._selector.resting += 1
        try:
            yield
        finally:
            self._selector.resting -= 1

    def end(self) -> None:
        """Stop the loop, at the end of the process."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(5)

    def _call(self) -> None:
        self._selector.answered()
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
