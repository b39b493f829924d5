"""`cutlayer health` asks a real server, and its exit code is the answer."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import grpc
import pytest

from cutlayer.errors import CredentialError, UnreachableError
from cutlayer.wire.grpc.health import add_health


@pytest.fixture
def server() -> Iterator[tuple[int, Callable[[bool], None]]]:
    """The port of a server with the health service alone, and what sets its answer."""
    started: Future[Any] = Future()

    async def serve() -> None:
        one = grpc.aio.server()
        health = add_health(one, ["cutlayer.v1.Training"])
        port = one.add_insecure_port("127.0.0.1:0")
        await one.start()
        over = asyncio.Event()
        started.set_result((port, health, over, asyncio.get_running_loop()))
        await over.wait()
        await one.stop(None)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    port, health, over, loop = started.result(30)

    def say(serving: bool) -> None:
        asyncio.run_coroutine_threadsafe(health.serving(serving), loop).result(30)

    yield port, say
    loop.call_soon_threadsafe(over.set)
    thread.join(30)


def test_the_exit_code_is_the_answer(run, server, monkeypatch: pytest.MonkeyPatch) -> None:
    # A probe needs no token, and looks at none.
    monkeypatch.setenv("CUTLAYER_TOKEN", "not a token")
    port, say = server
    address = f"127.0.0.1:{port}"
    assert run("health", address).exit_code == 1
    say(True)
    asked = run("health", address)
    assert (asked.exit_code, asked.stdout) == (0, f"{address} is serving\n")
    assert run("health", address, "--quiet").stdout == ""
    say(False)
    asked = run("health", address)
    assert (asked.exit_code, asked.stdout) == (1, f"{address} is not serving\n")


def test_mistakes_are_named(run, server) -> None:
    assert isinstance(run("health", "127.0.0.1:1", "--timeout", 1).exception, UnreachableError)
    assert isinstance(run("health", "nonsense").exception, UnreachableError)
    assert isinstance(run("health", "192.0.2.1:50551").exception, CredentialError)
