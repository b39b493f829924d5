"""A client's end: one stream to the server, made anew whenever it breaks.

The event loop runs in a thread of its own and hands events to the thread that computes, in order. Messages
belong to a conversation; after a Welcome a new one begins, and answers that are still on their way to the
old one go nowhere.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import queue
import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc

from cutlayer.errors import CutlayerError, MessageError, NetworkError, UnreachableError
from cutlayer.wire.grpc.client.connection_errors import blame, explain
from cutlayer.wire.grpc.client.stream import BrokenError, greet, last_word, prepare, said
from cutlayer.wire.grpc.event_loop import background
from cutlayer.wire.grpc.options import client_options
from cutlayer.wire.grpc.retransmit import Reliable, sealed
from cutlayer.wire.limits import MIB, Rate, Unhandled
from cutlayer.wire.link.bandwidth import Gauge
from cutlayer.wire.link.model import Link
from cutlayer.wire.link.shaping import shaped
from cutlayer.wire.messages.envelope import DOWN, UP, Parts, content_of, opener, to_bytes
from cutlayer.wire.messages.protobuf import TRAIN, message_class
from cutlayer.wire.meter import Direction
from cutlayer.wire.security.credentials import ClientSecurity

_LONGEST_PAUSE = 5.0
# Bytes of the largest message of the server's, unless somebody knows better: see `take_at_most`.
_LARGEST = 256 * MIB
# A server that sends a client away and back more often than so many times a second has to wait.
_RETURNS = 20.0
# How many events may wait when a new stream begins, and how long to wait until some were handled, in seconds.
_MOST_WAITING, _MOMENT = 16, 0.005
# A client is sent on at most once for each rank of the server; more than that is a circle.
_MOST_MOVES = 64


@dataclass(frozen=True)
class Event:
    """What the server wants: `kind` is offer, welcome, data or goodbye, or lost with an error as content."""

    kind: str
    content: Any
    conversation: Reliable | None = None
    answer: Any = None


class Connection:
    """Begins at once. `events` has what comes in; the last one is a goodbye or lost."""

    def __init__(
        self,
        address: str,
        security: ClientSecurity,
        *,
        claims: int | None = None,
        retry: float = 300.0,
        note: Callable[[str], None] = lambda text: None,
        link: Link | None = None,
        events: Any = None,
        gauge: Gauge | None = None,
        keeps_place: bool = False,
    ) -> None:
        """`keeps_place`: ask for the same number again, also from a server that was started anew."""
        self.address = address
        self._target = address
        self._moves = 0
        self.events: queue.Queue[Event] = queue.Queue() if events is None else events
        self.conversation: Reliable | None = None
        self._security = security
        self._claims = claims
        self._keeps_place = keeps_place
        self._retry = retry
        self._note = note
        self._says = "" if link is None else str(link)
        self._link = link
        self._gauge = gauge or Gauge()
        self._incarnation = secrets.token_bytes(16)
        self._attempt = 0
        self._era = ""
        self._failure: Any = None
        self._several = False
        """Whether the server takes several messages in one Data."""
        self._over = False
        self._returns = Rate(_RETURNS)
        self._unhandled = Unhandled(_LARGEST, self._waiting)
        self._well = time.monotonic()
        self._background = background()
        self._woken = asyncio.Event()
        self._task = self._background.start(self._stay())

    def send(self, conversation: Reliable | None, *messages: Parts) -> None:
        """Answer within a conversation. What is sent in one call goes out together."""
        if conversation is not None and conversation is self.conversation and messages:
            for message in messages:
                conversation.send(*message)
            self._wake()

    def take_at_most(self, size: int) -> None:
        """No message of an honest server has more bytes. It bounds what waits to be handled here, too."""
        self._unhandled.most = size

    def prepared(self, event: Event, ready: Any) -> None:
        """Answer an offer."""

        def resolve() -> None:
            if not event.answer.done():
                event.answer.set_result(ready)

        self._background.soon(resolve)

    def failed(self, reason: str, *, diverged: bool = False) -> None:
        """Tell the server that this client cannot go on, and end."""
        self._failure = message_class("Failed")(reason=reason, diverged=diverged)
        self._wake()
        deadline = time.monotonic() + 5
        while not self._task.done() and time.monotonic() < deadline:
            time.sleep(0.01)

    def forget(self) -> None:
        """Come back as one whose state is lost, so that the run goes back to its last checkpoint."""
        self._background.run(self._forget())

    def close(self) -> None:
        """Leave."""
        self._task.cancel()
        with contextlib.suppress(concurrent.futures.CancelledError, TimeoutError):
            self._task.result(5)

    def _wake(self) -> None:
        self._background.soon(self._woken.set)

    def _waiting(self) -> int:
        """How many events nobody has taken yet; 0 where the queue cannot tell."""
        return self.events.qsize() if hasattr(self.events, "qsize") else 0

    async def _forget(self) -> None:
        self._era, self.conversation = "", None
        self._woken.set()

    async def _stay(self) -> None:
        """Make the stream anew whenever it breaks, until the end."""
        pause = 0.2
        error: CutlayerError
        while not self._over:
            try:
                while self._waiting() > _MOST_WAITING:
                    await asyncio.sleep(_MOMENT)
                await self._once()
                if not self._returns.exceeded():
                    continue
                raise BrokenError("the server sends this client away and back again without end")
            except BrokenError as found:
                error = NetworkError(f"{self._target}: {found}")
            except grpc.aio.AioRpcError as found:
                error = await asyncio.to_thread(explain, found, self._target, self._security)
                if found.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
                    return self.events.put(Event("lost", error))
            except (asyncio.InvalidStateError, grpc.aio.UsageError):
                error = NetworkError(f"{self._target}: the connection broke")
            except CutlayerError as found:
                return self.events.put(Event("lost", found))
            except Exception as found:  # gRPC has many; whatever it is, nobody may wait for ever
                error = NetworkError(f"{self._target}: the connection broke ({type(found).__name__})")
            if self._over:
                continue
            # Where it was sent may be an address of the past. Whoever it was told to call knows better.
            error, self._target = blame(error, self._target, self.address), self.address
            well = time.monotonic() - self._well
            if well > self._retry:
                return self.events.put(Event("lost", error))
            pause = 0.2 if well < 1 else min(2 * pause, _LONGEST_PAUSE)
            self._note(f"{error}; trying again")
            await asyncio.sleep(pause * random.uniform(0.5, 1))

    async def _once(self) -> None:
        """One stream, to its end. Raises if there should be a pause before the next one."""
        channel = self._security.channel(self._target, client_options())
        try:
            method = channel.stream_stream(
                TRAIN,
                request_serializer=to_bytes,
                response_deserializer=opener(DOWN, "Down"),
            )
            call = method(metadata=self._security.metadata)
            self._attempt += 1
            down = await greet(
                call,
                self._claims,
                incarnation=self._incarnation,
                attempt=self._attempt,
                era=self._era,
                received=self.conversation.received if self.conversation else 0,
                link=self._says,
            )
            cursor = 0
            if content_of(down) == "resume" and self.conversation is not None:
                self.conversation.confirm(down.resume.received)
                cursor, self._several = down.resume.received, down.resume.takes_several
            elif content_of(down) == "offer":
                self._several = down.offer.takes_several
                down = await self._offered(call, down.offer)
                if content_of(down) != "welcome":
                    return self._goodbye(down)
                self._era = down.welcome.era
                self.conversation = Reliable()
                self.events.put(Event("welcome", down.welcome, self.conversation))
            else:
                return self._goodbye(down)
            self._well = time.monotonic()
            self._moves = 0
            await self._converse(call, cursor)
        finally:
            await channel.close()

    async def _offered(self, call: Any, offer: Any) -> Any:
        """Load the data meanwhile, and wait for the others."""
        if self._keeps_place:
            self._claims = offer.client
        if offer.link and not self._says:
            self._link = Link.parse(offer.link)
        answer = asyncio.get_running_loop().create_future()
        self.events.put(Event("offer", offer, answer=answer))
        return await prepare(call, answer)

    async def _converse(self, call: Any, cursor: int) -> None:
        conversation = self.conversation
        if conversation is None:
            raise RuntimeError("no conversation")
        self._gauge.clear()
        writer = asyncio.ensure_future(self._writer(call, conversation, cursor))
        try:
            while True:
                down = said(await call.read())
                if content_of(down) != "data":
                    return self._goodbye(down)
                try:
                    messages = list(conversation.accept_all(down, lambda: self._unhandled.most))
                except MessageError as error:
                    raise BrokenError(error) from None
                self._well = time.monotonic()
                self._gauge.confirmed(down.received, self._well)
                for message in messages:
                    self._unhandled.add(len(message))
                    self.events.put(Event("data", message, conversation))
                while self._unhandled.full:
                    await asyncio.sleep(_MOMENT)
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    async def _writer(self, call: Any, conversation: Reliable, cursor: int) -> None:
        async with contextlib.AsyncExitStack() as stack:
            write = await shaped(stack, self._link, Direction.UP, call.write)
            while True:
                if self._failure is not None:
                    await write(message_class("Up")(failed=self._failure), 0)
                    self._over = True
                    await call.done_writing()
                    return
                if conversation is not self.conversation:
                    # Given up here; the server then ends the stream, and the next one begins anew.
                    await call.done_writing()
                    return
                found = conversation.batch(cursor, self._several)
                if not found:
                    await self._woken.wait()
                    self._woken.clear()
                    continue
                cursor = found[-1].number
                data, length = sealed(UP, conversation.received, found)
                self._gauge.sent(cursor, length, time.monotonic())
                await write(data, length)

    def _goodbye(self, down: Any) -> None:
        """What the server's last word means for this client."""
        code, reason, address = last_word(down)
        if code == "MOVED":
            self._move(address)
        elif code != "AGAIN":
            self._over = True
            self.events.put(Event("goodbye", (code, reason)))

    def _move(self, address: str) -> None:
        """Another rank of the server has this client: the next stream goes there."""
        self._moves += 1
        try:
            self._security.check_sent_on(self.address, address)
        except UnreachableError as error:
            raise BrokenError(f"the server sends this client on: {error}") from None
        if self._moves > _MOST_MOVES:
            self._moves = 0
            raise BrokenError("no rank of the server has a place for this client")
        self._target = address
