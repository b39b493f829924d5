"""Streams on the event loop: from a connection to a client's place in the run, and bytes both ways."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable
from typing import Any

import grpc

from cutlayer.errors import CutlayerError, MessageError, NotNowError, RefusedError
from cutlayer.wire.grpc.event_loop import background
from cutlayer.wire.grpc.peer import Stream
from cutlayer.wire.grpc.transport import GrpcTransport
from cutlayer.wire.limits import Rate
from cutlayer.wire.link.model import Link
from cutlayer.wire.link.shaping import Write, shaped
from cutlayer.wire.messages.envelope import DOWN, UP, content_of, opener, seal, to_bytes
from cutlayer.wire.messages.protobuf import LISTENING, TRAINING, VERSION, message_class
from cutlayer.wire.meter import Direction
from cutlayer.wire.metrics import Metrics

_FAREWELL = 5.0
Identify = Callable[[Any], str | None]


class Service:
    """The gRPC service Training for the clients of a transport."""

    def __init__(
        self,
        transport: GrpcTransport,
        settings: str,
        identify: Identify = lambda context: None,
        aggregator: str = "",
        link: str = "",
        metrics: Metrics | None = None,
        confirms: bool = False,
    ) -> None:
        self.transport = transport
        self.settings = settings
        self.digest = hashlib.sha256(settings.encode()).hexdigest()
        self.identify = identify
        self.aggregator = aggregator
        self.link = link
        self.metrics = metrics
        self.confirms = confirms
        """Whether to confirm each message when it arrives."""
        self._strangers = 0

    def handler(self) -> Any:
        """What to give to `grpc.aio.Server.add_generic_rpc_handlers`."""
        method = grpc.stream_stream_rpc_method_handler(
            self.train,
            request_deserializer=opener(UP, "Up"),
            response_serializer=to_bytes,
        )
        return grpc.method_handlers_generic_handler(TRAINING, {"Train": method})

    async def train(self, _: Any, context: Any) -> None:
        """One stream, from Hello to Goodbye."""
        try:
            name = self.identify(context)
        except CutlayerError as error:
            self._refused("credential", error)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
        await context.send_initial_metadata(((LISTENING, str(VERSION)),))
        stream = Stream(background().soon)
        client = None
        try:
            client = await self._greet(context, stream, name)
            if client is not None:
                await self._converse(context, stream, client)
        finally:
            if client is not None:
                with self.transport.lock:
                    self.transport.lost(client, stream)

    async def _greet(self, context: Any, stream: Stream, name: str | None) -> int | None:
        """Let a client in, or say why not."""
        if self._strangers >= self.transport.limits.strangers:
            self._refused("crowd", None)
            await _goodbye(context, "LATER", "too many clients are knocking; try again")
            return None
        self._strangers += 1
        client = None
        try:
            hello = (await _read(context, self.transport.limits.hello, "Hello", "hello")).hello
            _check_hello(hello)
            stream.link = Link.parse(hello.link or self.link) if hello.link or self.link else None
            with self.transport.lock:
                client = self._place(hello, name)
                resumed = self.transport.greet(client, hello, stream)
                received = stream.conversation.received if stream.conversation else 0
            if resumed:
                down = message_class("Down")(resume=message_class("Resume")(received=received))
                await context.write(down)
                self.transport.log("client-resumed", client)
                return client
        except NotNowError as error:
            self._refused("later", error, client)
            await _goodbye(context, "LATER", str(error))
            return None
        except CutlayerError as error:
            self._refused("hello", error, client)
            await _goodbye(context, "REFUSED", str(error))
            return None
        finally:
            self._strangers -= 1
        try:
            await context.write(message_class("Down")(offer=self._offer(client)))
            ready = (await _read(context, self.transport.limits.prepare, "Ready", "ready")).ready
            if ready.digest != self.digest:
                raise RefusedError(
                    f"the client reads the run's settings as {ready.digest[:12] or 'nothing'}, the server as "
                    f"{self.digest[:12]}; install the same release of cutlayer on both"
                )
            with self.transport.lock:
                self.transport.prepared(client, ready)
            self.transport.log("client-ready", client, samples=ready.samples)
            return client
        except BaseException as error:
            with self.transport.lock:
                self.transport.lost(client, stream)
            if not isinstance(error, CutlayerError):
                raise
            self._refused("data", error, client)
            await _goodbye(context, "LATER" if isinstance(error, NotNowError) else "REFUSED", str(error))
            return None

    def _place(self, hello: Any, name: str | None) -> int:
        """Which client of the run this is: its credential says so, if there are any."""
        peers = self.transport.peers
        if name is not None:
            names = self.transport.names
            if name not in names:
                raise RefusedError(f"{name!r} is not among the clients of this run")
            return names.index(name)
        if hello.HasField("claims"):
            if hello.claims >= len(peers):
                raise RefusedError(f"there is no client {hello.claims}; the run has {len(peers)}, from 0")
            return int(hello.claims)
        known = [peer.number for peer in peers if peer.incarnation == hello.incarnation]
        free = [peer.number for peer in peers if peer.stream is None and peer.conversation is None]
        lost = [peer.number for peer in peers if peer.stream is None]
        found = (known or free or lost)[:1]
        if not found:
            raise RefusedError(f"all {len(peers)} clients of the run are connected")
        return found[0]

    def _offer(self, client: int) -> Any:
        return message_class("Offer")(
            client=client,
            clients=len(self.transport.peers),
            settings=self.settings,
            digest=self.digest,
            aggregator=self.aggregator,
            link=self.link,
        )

    def _refused(self, kind: str, error: Exception | None, client: int | None = None) -> None:
        self.transport.log("refused", client, "warning", kind=kind, error=error)
        if self.metrics is not None:
            self.metrics.refused(kind)

    async def _converse(self, context: Any, stream: Stream, client: int) -> None:
        async with contextlib.AsyncExitStack() as stack:
            write = await shaped(stack, stream.link, Direction.DOWN, context.write)
            tasks = [
                asyncio.ensure_future(self._reader(context, stream, client)),
                asyncio.ensure_future(self._writer(write, stream)),
                asyncio.ensure_future(_farewell(stream)),
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        self.transport.log("client-left", client)

    async def _reader(self, context: Any, stream: Stream, client: int) -> None:
        rate = Rate(self.transport.limits.rate)
        while True:
            up = await context.read()
            if up is grpc.aio.EOF:
                return
            try:
                if rate.exceeded():
                    raise MessageError(f"more than {self.transport.limits.rate:g} messages a second")
                with self.transport.lock:
                    self._take(up, stream, client)
            except MessageError as error:
                with self.transport.lock:
                    if self.transport.peers[client].stream is stream:
                        self.transport.expel(client, str(error))
                        continue  # until the writer has said goodbye
                return

    def _take(self, up: Any, stream: Stream, client: int) -> None:
        kind = content_of(up)
        if kind == "failed":
            self.transport.failed(client, up.failed)
            return
        if kind != "data" or stream.conversation is None:
            raise MessageError(f"a {kind or 'message without content'} where none is expected")
        message = stream.conversation.accept(up.number, up.received, up.message)
        if self.confirms:
            # At once, and not with the next message down: the client measures its uplink by it.
            stream.say(data=message_class("Data")(received=stream.conversation.received))
        if message is not None and self.transport.peers[client].conversation is stream.conversation:
            self.transport.arrived(client, message)

    async def _writer(self, write: Write, stream: Stream) -> None:
        while True:
            while stream.control:
                message = stream.control.popleft()
                await write(message, 0)
                if message.WhichOneof("content") == "goodbye":
                    return
            conversation = stream.conversation
            found = conversation.after(stream.cursor) if conversation else None
            if conversation is not None and found is not None:
                number, parts = found
                sealed = seal(DOWN, number, conversation.received, parts)
                await write(sealed, sum(map(len, parts)))
                stream.cursor = number
                continue
            await stream.woken.wait()
            stream.woken.clear()


def _check_hello(hello: Any) -> None:
    if hello.protocol != VERSION:
        raise RefusedError(
            f"the client speaks version {hello.protocol} of the protocol (cutlayer "
            f"{hello.release[:20] or '?'}), this server version "
            f"{VERSION}; install the same release of cutlayer on both"
        )
    if len(hello.incarnation) != 16 or hello.attempt < 1:
        raise RefusedError("a damaged Hello: 16 random bytes and an attempt from 1 are expected")


async def _read(context: Any, seconds: float, what: str, kind: str) -> Any:
    try:
        up = await asyncio.wait_for(context.read(), seconds)
    except TimeoutError:
        raise RefusedError(f"no {what} in {seconds:g} s") from None
    if up is grpc.aio.EOF:
        raise asyncio.CancelledError
    if content_of(up) != kind:
        raise RefusedError(f"{what} was expected, not {content_of(up)}")
    return up


async def _farewell(stream: Stream) -> None:
    """Ends when a client that is to go has had time to read why. One that does not read does not stay."""
    await stream.ending.wait()
    await asyncio.sleep(_FAREWELL)


async def _goodbye(context: Any, code: str, reason: str) -> None:
    goodbye = message_class("Goodbye")
    with contextlib.suppress(Exception):
        await asyncio.wait_for(
            context.write(
                message_class("Down")(goodbye=goodbye(code=goodbye.Code.Value(code), reason=reason))
            ),
            _FAREWELL,
        )
