"""Who says nothing holds a place for a while at most, and never that of somebody who speaks."""

import asyncio
from typing import Any

import pytest

from cutlayer.wire.grpc.guard.silent import ReplacedError, Silent, split_peer


async def never() -> None:
    await asyncio.Event().wait()


async def begin(silent: Silent, count: int, host: str, name: str | None = None) -> list[Any]:
    """Calls that say nothing."""
    calls = [asyncio.ensure_future(silent.first(never(), 60, host, name)) for _ in range(count)]
    for _ in range(5):
        await asyncio.sleep(0)
    return calls


async def end(*calls: Any) -> None:
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


def run(work: Any) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def test_the_newest_replaces_the_oldest_of_whoever_has_most() -> None:
    async def work() -> None:
        silent = Silent(8)
        honest = await begin(silent, 2, "10.0.0.1")
        flood = await begin(silent, 100, "6.6.6.6")
        assert len(silent) == 8
        assert not any(call.done() for call in honest)
        assert [call.done() for call in flood] == 94 * [True] + 6 * [False]
        with pytest.raises(ReplacedError):
            await flood[0]
        # One more of somebody else pushes out the flood's, not the honest ones.
        other = await begin(silent, 1, "10.0.0.2")
        assert not any(call.done() for call in honest)
        assert flood[94].done()
        await end(*honest, *flood, *other)

    run(work())


def test_a_name_has_few_and_does_not_live_at_the_cost_of_others() -> None:
    async def work() -> None:
        silent = Silent(64, named=4)
        flood = await begin(silent, 100, "6.6.6.6", "mallory")
        assert len(silent) == 4
        honest = await begin(silent, 1, "6.6.6.6", "anna")
        assert [call.done() for call in flood] == 96 * [True] + 4 * [False]
        assert not honest[0].done()
        await end(*honest, *flood)

    run(work())


def test_who_speaks_leaves_and_who_does_not_is_given_up() -> None:
    async def work() -> None:
        silent = Silent(2)

        async def word() -> str:
            return "hello"

        assert await silent.first(word(), 60, "a") == "hello"
        with pytest.raises(TimeoutError):
            await silent.first(never(), 0.01, "a")
        assert len(silent) == 0

    run(work())


def test_peers_as_grpc_writes_them() -> None:
    assert split_peer("ipv4:127.0.0.1:4711") == ("127.0.0.1", 4711)
    assert split_peer("ipv6:%5B::1%5D:4711") == ("::1", 4711)
    assert split_peer("ipv6:[::ffff:10.0.0.1]:1") == ("10.0.0.1", 1)
    assert split_peer("unix:/tmp/socket") == ("unix:/tmp/socket", 0)
