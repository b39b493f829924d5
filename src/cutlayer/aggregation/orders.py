"""The split server's connection to an aggregator that runs in a process of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import Any

import grpc

from cutlayer.errors import CredentialError, FileError, RefusedError, RollbackError, UnreachableError
from cutlayer.wire.grpc.client.connection_errors import explain
from cutlayer.wire.grpc.event_loop import background
from cutlayer.wire.grpc.options import client_options
from cutlayer.wire.messages.protobuf import PACKAGE, message_class
from cutlayer.wire.security.credentials import ClientSecurity

# How often a waiting thread looks whether it was interrupted, and how long it lets an aggregator alone.
_GLANCE, _PAUSE = 0.2, 0.5
# How long an order may take: the clients may be slow to come.
_PATIENCE = 3600.0
# How long a step may still take after Ctrl-C, until the last checkpoint has to do.
_LAST_STEP = 10.0
_KINDS = {"Begin": "Beginning", "Combine": "Combination", "Keep": "Keeping"}
_FINAL = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNIMPLEMENTED)


class Orders:
    """Gives orders: Begin, Combine (average what these clients shared) and Keep (a checkpoint)."""

    def __init__(
        self,
        address: str,
        security: ClientSecurity,
        *,
        interrupted: Callable[[], bool] = lambda: False,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.address = address
        self._interrupted = interrupted
        self._note = note
        self._security = security
        self._channel: Any = background().run(self._open())

    def give(self, method: str, **order: Any) -> None:
        """Have something done, and wait for it. An aggregator that is not there yet is waited for."""
        work = self._begin if method == "Begin" else self._give
        done = background().start(work(method, message_class(_KINDS[method])(**order)))
        # Nothing is under way before Begin; anything else belongs to a step, which should end.
        left = 0.0 if method == "Begin" else _LAST_STEP
        while not concurrent.futures.wait([done], _GLANCE).done:
            if self._interrupted():
                left -= _GLANCE
                if left <= 0:
                    done.cancel()
                    raise KeyboardInterrupt
        done.result()

    def close(self) -> None:
        """Hang up."""
        background().run(self._channel.close())

    async def _open(self) -> Any:
        try:
            return self._security.channel(self.address, client_options())
        except CredentialError as error:
            raise CredentialError(f"the aggregator: {error}. Its CA is given with --aggregator-ca") from None

    async def _begin(self, method: str, order: Any) -> None:
        told = ""
        while True:
            try:
                return await self._give(method, order)
            except UnreachableError as error:
                if str(error) != told:
                    told = str(error)
                    self._note(f"the aggregator: {told}; trying again")
            await asyncio.sleep(_PAUSE)

    async def _give(self, method: str, order: Any) -> None:
        call = self._channel.unary_unary(
            f"/{PACKAGE}.Aggregation/{method}",
            request_serializer=type(order).SerializeToString,
            response_deserializer=message_class("Done").FromString,
        )
        try:
            await call(order, metadata=self._security.metadata, timeout=_PATIENCE)
        except grpc.aio.AioRpcError as error:
            if error.code() in _FINAL:
                # The same order would fail again.
                raise RefusedError(f"the aggregator at {self.address}: {error.details()}") from None
            if error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise FileError(f"the aggregator at {self.address}: {error.details()}") from None
            why = await asyncio.to_thread(explain, error, self.address, self._security)
            if isinstance(why, CredentialError):
                raise CredentialError(f"the aggregator: {why}") from None
            if method == "Begin" and error.code() == grpc.StatusCode.UNAVAILABLE:
                raise why from None
            await asyncio.sleep(_PAUSE)
            raise RollbackError(f"the aggregator at {self.address}: {error.details()}") from None
