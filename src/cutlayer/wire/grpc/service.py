"""Streams on the event loop: from a connection to a client's place in the run, and bytes both ways."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable
from typing import Any

import grpc

from cutlayer.errors import CutlayerError, MessageError, MovedError, NotNowError, RefusedError
from cutlayer.wire.grpc.event_loop import background
from cutlayer.wire.grpc.guard.revoked import Identify, RevokedCredentials
from cutlayer.wire.grpc.guard.silent import ReplacedError, Silent, host_of
from cutlayer.wire.grpc.peer import Stream
from cutlayer.wire.grpc.retransmit import sealed
from cutlayer.wire.grpc.stream_io import expect, farewell, goodbye, read, write_soon
from cutlayer.wire.grpc.transport import GrpcTransport
from cutlayer.wire.limits import Rate
from cutlayer.wire.link.model import Link
from cutlayer.wire.link.shaping import Write, shaped
from cutlayer.wire.messages.envelope import DOWN, UP, Packet, content_of, opener, to_bytes
from cutlayer.wire.messages.protobuf import LISTENING, TRAINING, VERSION, message_class
from cutlayer.wire.meter import Direction
from cutlayer.wire.metrics import Metrics


class Service:
    """The gRPC service Training for the clients of a transport."""

    def __init__(
        self,
        transport: GrpcTransport,
        settings: str,
        identify: Identify = lambda context: None,
        revision: Callable[[], int] = lambda: 0,
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
        self._silent = Silent(transport.limits.strangers)
        self._credentials = RevokedCredentials(
            identify,
            revision,
            lambda name: self._refused("credential", RefusedError(f"the credential of {name} was revoked")),
        )

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
        revision = self._credentials.revision
        try:
            name = self.identify(context)
        except CutlayerError as error:
            self._refused("credential", error)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
        await context.send_initial_metadata(((LISTENING, str(VERSION)),))
        stream = Stream(background().soon)
        client = await self._greet(context, stream, name)
        if client is None:
            return
        self._credentials.add(stream, context, name, revision)
        try:
            if await self._prepare(context, stream, client):
                await self._converse(context, stream, client)
        finally:
            self._credentials.remove(stream)
            with self.transport.lock:
                self.transport.lost(client, stream)

    async def _greet(self, context: Any, stream: Stream, name: str | None) -> int | None:
        """Read a client's Hello and give it its place in the run, or say why not."""
        client = None
        seconds = self.transport.limits.hello
        try:
            up = await self._silent.first(context.read(), seconds, host_of(context), name)
            hello = expect(up, "Hello", "hello").hello
            _check_hello(hello)
            stream.takes_several = hello.takes_several
            stream.link = Link.parse(hello.link or self.link) if hello.link or self.link else None
            with self.transport.lock:
                client = self.transport.place_for(hello, name)
                self.transport.greet(client, hello, stream)
            return client
        except ReplacedError as error:
            self._refused("crowd", None)
            await goodbye(context, "LATER", str(error))
        except TimeoutError:
            self._refused("hello", RefusedError(f"no Hello in {seconds:g} s"))
            await goodbye(context, "REFUSED", f"no Hello in {seconds:g} s")
        except MovedError as error:
            self.transport.log("client-moved", None, address=error.address)
            await goodbye(context, "MOVED", str(error), error.address)
        except NotNowError as error:
            self._refused("later", error, client)
            await goodbye(context, "LATER", str(error))
        except CutlayerError as error:
            self._refused("hello", error, client)
            await goodbye(context, "REFUSED", str(error))
        return None

    async def _prepare(self, context: Any, stream: Stream, client: int) -> bool:
        """Bring a client to where data can flow; False if it does not get there.

        A newer connection of the same client, or the end of the run, ends this one at once.
        """
        work = asyncio.ensure_future(self._offer_or_resume(context, stream, client))
        ended = asyncio.ensure_future(stream.ending.wait())
        try:
            await asyncio.wait((work, ended), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
        except CutlayerError as error:
            with self.transport.lock:
                self.transport.lost(client, stream)
            self._refused("data", error, client)
            await goodbye(context, "LATER" if isinstance(error, NotNowError) else "REFUSED", str(error))
            return False
        finally:
            for task in (work, ended):
                task.cancel()
            await asyncio.gather(work, ended, return_exceptions=True)
        with contextlib.suppress(Exception):  # it may have gone already
            while stream.control:
                await write_soon(context, stream.control.popleft())
        return False

    async def _offer_or_resume(self, context: Any, stream: Stream, client: int) -> bool:
        limits = self.transport.limits
        if stream.conversation is not None:
            resume = message_class("Resume")(received=stream.conversation.received, takes_several=True)
            await write_soon(context, message_class("Down")(resume=resume))
            self.transport.log("client-resumed", client)
            return True
        await write_soon(context, message_class("Down")(offer=self._offer(client)))
        ready = (await read(context, limits.prepare, "Ready", "ready")).ready
        if ready.digest != self.digest:
            raise RefusedError(
                f"the client reads the run's settings as {ready.digest[:12] or 'nothing'}, the server as "
                f"{self.digest[:12]}; install the same release of cutlayer on both"
            )
        with self.transport.lock:
            self.transport.prepared(client, ready)
        self.transport.log("client-ready", client, samples=ready.samples)
        return True

    def _offer(self, client: int) -> Any:
        return message_class("Offer")(
            client=client,
            clients=len(self.transport.peers),
            settings=self.settings,
            digest=self.digest,
            aggregator=self.aggregator,
            link=self.link,
            takes_several=True,
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
                asyncio.ensure_future(farewell(stream)),
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                # Here, because the stream of a client that is killed is cancelled.
                self.transport.log("client-left", client)

    async def _reader(self, context: Any, stream: Stream, client: int) -> None:
        rate = Rate(self.transport.limits.rate)
        while True:
            up = await context.read()
            if up is grpc.aio.EOF:
                return
            try:
                if rate.exceeded(1 + len(up.further) if isinstance(up, Packet) else 1):
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
        for message in stream.conversation.accept_all(up, lambda: self.transport.room(client)):
            if self.transport.peers[client].conversation is stream.conversation:
                self.transport.arrived(client, message)
        if self.confirms:
            # At once, and not with the next message down: the client measures its uplink by it.
            stream.say(data=message_class("Data")(received=stream.conversation.received))

    async def _writer(self, write: Write, stream: Stream) -> None:
        while True:
            while stream.control:
                message = stream.control.popleft()
                await write(message, 0)
                if message.WhichOneof("content") == "goodbye":
                    return
            conversation = stream.conversation
            found = conversation.batch(stream.cursor, stream.takes_several) if conversation else None
            if conversation is not None and found:
                await write(*sealed(DOWN, conversation.received, found))
                stream.cursor = found[-1].number
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
