"""One event loop a process, whoever asks first."""

import asyncio
import selectors
import socket
import threading
import time
from functools import cache

import pytest

from cutlayer.wire.grpc import event_loop


def test_threads_that_ask_at_the_same_time_get_one_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[object] = []
    found: list[object] = []
    release = threading.Event()

    @cache
    def started() -> object:
        begun.append(object())
        release.wait(60)
        return begun[-1]

    monkeypatch.setattr(event_loop, "_started", started)
    threads = [threading.Thread(target=lambda: found.append(event_loop.background())) for _ in range(3)]
    for thread in threads:
        thread.start()
    release.set()
    for thread in threads:
        thread.join()
    assert len(begun) == 1
    assert found == begun * 3


def test_a_reader_is_called_once_for_all_bytes_that_wait() -> None:
    # As gRPC does: a byte for each message, and a reader that takes one byte and all messages.
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    found = event_loop.background()
    taken: list[bytes] = []

    async def listen() -> None:
        found.loop.add_reader(ours, lambda: taken.append(ours.recv(1)))
        # The loop is here until all have been written.
        theirs.sendall(bytes(50))

    async def ignore() -> bool:
        return found.loop.remove_reader(ours)

    found.run(listen())
    for _ in range(3):
        found.run(asyncio.sleep(0))
    assert taken == [b"\0"]
    theirs.sendall(b"x")
    theirs.close()
    for _ in range(3):
        found.run(asyncio.sleep(0))
    assert taken[1] == b"x"
    assert found.run(ignore())
    ours.close()


def test_a_resting_loop_takes_messages_together_and_calls_at_once() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    selector = event_loop._RestingSelector()
    selector.register(ours, selectors.EVENT_READ)
    selector.resting = 1
    selector._since = -1000.0  # so that it rests for as long as it ever does
    called = threading.Timer(0.001, theirs.sendall, (b"second",))
    theirs.sendall(b"first ")
    called.start()
    began = time.monotonic()
    assert selector.select(60)
    assert time.monotonic() - began >= event_loop._LONGEST
    called.join()
    assert ours.recv(20) == b"first second"

    theirs.sendall(b"third")
    selector.called.set()  # another thread has something to send
    waits: list[float] = []
    selector.called.wait = waits.append  # type: ignore[assignment, method-assign]
    assert selector.select(60)
    assert not waits
    selector.answered()
    assert selector.select(0)
    assert not waits
    assert selector.select(60)
    assert waits == [pytest.approx(0, abs=event_loop._LONGEST)]
    selector.close()
    ours.close()
    theirs.close()


def test_a_loop_rests_only_where_somebody_asks_for_it() -> None:
    found = event_loop.background()
    with found.resting(), found.resting():
        assert found._selector.resting == 2
    assert found._selector.resting == 0
