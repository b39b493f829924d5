"""Where every call enters a server: who calls is known before its request is read.

gRPC reads the request of a unary method before it asks the method who may call it, and waits for that
request for as long as the caller likes. On the wire a unary call and a stream of one message look the same.
So the gate makes streams of all methods: it looks at the credential when the headers come, then waits for the
request in a place of its peer's, with a deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from contextvars import ContextVar
from typing import Any

import grpc

from cutlayer.errors import CredentialError
from cutlayer.wire import log
from cutlayer.wire.grpc.guard.silent import ReplacedError, Silent, host_of
from cutlayer.wire.grpc.options import PUSHBACK
from cutlayer.wire.limits import Limits, Places
from cutlayer.wire.metrics import Metrics

#: Anybody may ask for these: probers have no credentials.
OPEN = "/grpc.health.v1.Health/"
_SOON = (PUSHBACK, "50")

caller: ContextVar[str | None] = ContextVar("caller", default=None)
"""The name of the client whose call this is; None where none is asked for."""


class Gate(grpc.aio.ServerInterceptor):
    """The interceptor to give to `grpc.aio.server`. Methods of a server behind it must be coroutines.

    Calls whose request has not come yet are few, fairly between peers: see `Silent`. `places` bounds those
    that wait for an answer, and as many may then be without a request.
    """

    def __init__(
        self,
        identify: Callable[[Any], str | None],
        limits: Limits,
        *,
        places: Places | None = None,
        metrics: Metrics | None = None,
        admitted: Callable[[str], None] = lambda peer: None,
    ) -> None:
        """`admitted` is told the address and port of each call with a good credential."""
        self._identify = identify
        self._limits = limits
        self._places = places
        self._metrics = metrics
        self._admitted = admitted
        # Apart, so that those without credentials cannot push out those with.
        self._strangers = Silent(limits.strangers)
        self._silent = Silent(*([places.total] * 2 if places else [limits.strangers]))
        self._handlers: dict[str, Any] = {}

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        """The method as it is called through the gate."""
        found = self._handlers.get(details.method)
        if found is None:
            handler = await continuation(details)
            if handler is None:
                return None
            found = self._handlers[details.method] = self._guarded(handler, details.method.startswith(OPEN))
        return found

    def _guarded(self, handler: Any, is_open: bool) -> Any:
        async def stream(requests: Any, context: Any) -> None:
            await self._enter(context)
            await handler.stream_stream(requests, context)

        async def unary(_: Any, context: Any) -> None:
            name = None if is_open else await self._enter(context)
            peer = host_of(context) if name is None else f"name {name}"
            try:
                request = await self._request(context, handler, name, is_open)
                with self._places.held(peer) if self._places and not is_open else nullcontext():
                    if handler.response_streaming:
                        await handler.unary_stream(request, context)
                    else:
                        reply = await handler.unary_unary(request, context)
                        # Whoever does not read its answer does not keep its place either.
                        await asyncio.wait_for(context.write(reply), self._limits.body)
            except BlockingIOError as error:
                context.set_trailing_metadata((_SOON,))
                await self._refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "busy", error)
            except TimeoutError:
                await self._refuse(
                    context, grpc.StatusCode.DEADLINE_EXCEEDED, "slow", "the caller is too slow"
                )

        streams = handler.request_streaming
        return grpc.stream_stream_rpc_method_handler(
            stream if streams else unary,
            request_deserializer=handler.request_deserializer if streams else None,
            response_serializer=handler.response_serializer,
        )

    async def _enter(self, context: Any) -> str | None:
        """Who calls. Raises, after the call was refused, if its credential is not good."""
        try:
            name = self._identify(context)
        except CredentialError as error:
            await self._refuse(context, grpc.StatusCode.UNAUTHENTICATED, "credential", error)
            raise
        caller.set(name)
        self._admitted(context.peer())
        return name

    async def _request(self, context: Any, handler: Any, name: str | None, is_open: bool) -> Any:
        silent, seconds = (
            (self._strangers, self._limits.hello) if is_open else (self._silent, self._limits.body)
        )
        try:
            body = await silent.first(context.read(), seconds, host_of(context), name)
        except ReplacedError as error:
            raise BlockingIOError(str(error)) from None
        if body is grpc.aio.EOF:
            await self._refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "empty", "a call without a request")
        try:
            return handler.request_deserializer(body)
        except Exception:  # whatever the library says of bytes that it cannot read
            await self._refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "request", "a damaged request")
            raise

    async def _refuse(self, context: Any, code: Any, reason: str, why: object) -> None:
        """End the call. Raises."""
        log.event("refused", level="warning", reason=reason, why=str(why), peer=context.peer())
        if self._metrics is not None:
            self._metrics.refused(reason)
        await context.abort(code, str(why))
