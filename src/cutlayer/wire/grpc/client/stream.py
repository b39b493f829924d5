"""A client's stream to the server before data flow: its Hello, its answer to an offer, a last word read.

What ends where it should not raises `BrokenError`: another stream may do better.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import grpc

import cutlayer
from cutlayer.wire.messages.envelope import content_of
from cutlayer.wire.messages.protobuf import LISTENING, VERSION, message_class

# How long the server may take to answer a Hello, in seconds.
_ANSWER = 60.0
_HUNG_UP = "the server hung up"


class BrokenError(Exception):
    """The stream has ended where it should not; another one may do better."""


def said(down: Any) -> Any:
    """What was read, if it is not the end."""
    if down is grpc.aio.EOF:
        raise BrokenError(_HUNG_UP)
    if down is None:  # gRPC's word for what the deserializer did not like
        raise BrokenError("the server sent bytes that are no message")
    return down


async def greet(call: Any, claims: int | None, **about: Any) -> Any:
    """Say Hello as soon as the server listens; what it answers. `claims` is the number that it wants."""
    hello = message_class("Hello")(
        protocol=VERSION, release=cutlayer.__version__, takes_several=True, **about
    )
    if claims is not None:
        hello.claims = claims
    try:
        async with asyncio.timeout(_ANSWER):
            # Nothing is written before the server says that it listens: see `_write`.
            if LISTENING not in (await call.initial_metadata() or ()):
                return said(await call.read())
            reading = asyncio.ensure_future(call.read())
            try:
                await _write(call, message_class("Up")(hello=hello))
                return said(await reading)
            finally:
                reading.cancel()
    except TimeoutError:
        raise BrokenError(_HUNG_UP) from None


async def prepare(call: Any, answer: asyncio.Future[Any]) -> Any:
    """Answer an offer when the data are loaded, and wait for the others; what the server says then."""
    reading = asyncio.ensure_future(call.read())
    try:
        await asyncio.wait((answer, reading), return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            await _write(call, message_class("Up")(ready=answer.result()))
        return said(await reading)
    finally:
        reading.cancel()


def last_word(down: Any) -> tuple[str, str, str]:
    """The server's goodbye: its code, its reason, and an address to call."""
    kind = content_of(down)
    if kind != "goodbye":
        raise BrokenError(f"the server sent {kind} where none is expected")
    goodbye = down.goodbye
    code = goodbye.Code.Name(goodbye.code) if goodbye.code in goodbye.Code.values() else "UNKNOWN"
    if code == "LATER":
        raise BrokenError(goodbye.reason)
    return code, goodbye.reason, goodbye.address


async def _write(call: Any, up: Any) -> None:
    """Write, while somebody reads: if the server has left, its last word says why.

    A write to a stream that the server has ended fails with a status of gRPC's own, "Internal error from
    Core", which then hides the server's.
    """
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        await call.write(up)
