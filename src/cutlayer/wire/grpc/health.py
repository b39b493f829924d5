"""The standard gRPC health service, so that any prober (grpc_health_probe, Kubernetes) can ask.

Probers have no credentials, so what they may hold is bounded: no call waits for another, and of those who
watch for changes a newer one replaces the oldest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from cutlayer.wire.grpc.client.connection_errors import explain
from cutlayer.wire.grpc.guard.silent import ReplacedError, Silent, host_of
from cutlayer.wire.security.credentials import ClientSecurity

HEALTH = "grpc.health.v1.Health"
_WATCHERS = 64
_READ = 10.0
# Seconds without a change after which a watcher has to ask again.
_WATCH = 3600.0


class Health:
    """What the server answers to `grpc.health.v1.Health`: SERVING or NOT_SERVING."""

    def __init__(self, services: Iterable[str]) -> None:
        self._serving = False
        self._left = False
        # The empty name is the server as a whole.
        self._services = ("", *services)
        self._changed = asyncio.Event()
        self._watchers = Silent(_WATCHERS)

    async def serving(self, is_serving: bool) -> None:
        """Set the answer for all services."""
        if not self._left:
            self._serving = is_serving
            self._changed.set()
            self._changed = asyncio.Event()

    async def leave(self) -> None:
        """Say NOT_SERVING for good, before the server stops."""
        await self.serving(False)
        self._left = True

    def handler(self) -> Any:
        """What to give to `grpc.aio.Server.add_generic_rpc_handlers`."""
        both = {
            "request_deserializer": health_pb2.HealthCheckRequest.FromString,
            "response_serializer": health_pb2.HealthCheckResponse.SerializeToString,
        }
        methods = {
            "Check": grpc.unary_unary_rpc_method_handler(self.check, **both),
            "Watch": grpc.unary_stream_rpc_method_handler(self.watch, **both),
        }
        return grpc.method_handlers_generic_handler(HEALTH, methods)

    async def check(self, request: Any, context: Any) -> Any:
        """How a service is now."""
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        return self._answer(request.service)

    async def watch(self, request: Any, context: Any) -> None:
        """How a service is now, and whenever that changes."""
        told = None
        try:
            while True:
                changed = self._changed
                answer = self._answer(request.service)
                if answer != told:
                    await asyncio.wait_for(context.write(answer), _READ)
                    told = answer
                await self._watchers.first(changed.wait(), _WATCH, host_of(context))
        except (ReplacedError, TimeoutError):
            await context.abort(grpc.StatusCode.UNAVAILABLE, "too long, or too many: watch again")

    def _answer(self, service: str) -> Any:
        states = health_pb2.HealthCheckResponse
        state = states.SERVING if self._serving else states.NOT_SERVING
        return states(status=state if service in self._services else states.SERVICE_UNKNOWN)


def check_health(address: str, security: ClientSecurity, timeout: float = 5.0, service: str = "") -> bool:
    """Ask a server whether it serves: all of it, or one service. Raises if it does not answer."""
    with security.sync_channel(address) as channel:
        ask = channel.unary_unary(
            f"/{HEALTH}/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        try:
            answer = ask(health_pb2.HealthCheckRequest(service=service), timeout=timeout)
        except grpc.RpcError as error:
            raise explain(error, address, security, timeout) from None
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def add_health(server: grpc.aio.Server, services: Iterable[str] = ()) -> Health:
    """Add the health service to a server that has not started. It says NOT_SERVING until told otherwise."""
    health = Health(services)
    server.add_generic_rpc_handlers((health.handler(),))
    return health
