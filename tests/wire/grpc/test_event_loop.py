"""One event loop a process, whoever asks first."""

import asyncio
import socket
import threading
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
