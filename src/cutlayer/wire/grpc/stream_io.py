"""One message to or from a stream, with a deadline: a peer that neither writes nor reads does not stay."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import grpc

from cutlayer.errors import RefusedError
from cutlayer.wire.grpc.peer import Stream
from cutlayer.wire.messages.envelope import content_of
from cutlayer.wire.messages.protobuf import message_class

_FAREWELL = 5.0


async def read(context: Any, seconds: float, what: str, kind: str) -> Any:
    """The next message, which has to be of a kind."""
    try:
        up = await asyncio.wait_for(context.read(), seconds)
    except TimeoutError:
        raise RefusedError(f"no {what} in {seconds:g} s") from None
    return expect(up, what, kind)


def expect(up: Any, what: str, kind: str) -> Any:
    """The message, if it is of the kind that is due."""
    if up is grpc.aio.EOF:
        raise asyncio.CancelledError
    if content_of(up) != kind:
        raise RefusedError(f"{what} was expected, not {content_of(up)}")
    return up


async def write_soon(context: Any, message: Any) -> None:
    """Write to a peer that has nothing else to read, and so has no reason not to."""
    try:
        await asyncio.wait_for(context.write(message), _FAREWELL)
    except TimeoutError:
        raise RefusedError(f"the client has read nothing for {_FAREWELL:g} s") from None


async def farewell(stream: Stream) -> None:
    """Ends when a client that is to go has had time to read why. One that does not read does not stay."""
    await stream.ending.wait()
    await asyncio.sleep(_FAREWELL)


async def goodbye(context: Any, code: str, reason: str, address: str = "") -> None:
    """Say goodbye to whoever still reads; `address` is where else to call."""
    kind = message_class("Goodbye")
    said = kind(code=kind.Code.Value(code), reason=reason, address=address)
    with contextlib.suppress(Exception):
        await write_soon(context, message_class("Down")(goodbye=said))
