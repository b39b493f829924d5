"""One event loop a process, whoever asks first."""

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
