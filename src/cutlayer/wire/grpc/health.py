"""The standard gRPC health service, so that any prober (grpc_health_probe, Kubernetes) can ask."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc


class Health:
    """What the server answers to `grpc.health.v1.Health/Check`: SERVING or NOT_SERVING."""

    def __init__(self, servicer: Any, services: Iterable[str]) -> None:
        self._servicer = servicer
        # The empty name is the server as a whole.
        self._services = ("", *services)

    async def serving(self, is_serving: bool) -> None:
        """Set the answer for all services."""
        states = health_pb2.HealthCheckResponse
        state = states.SERVING if is_serving else states.NOT_SERVING
        for service in self._services:
            await self._servicer.set(service, state)

    async def leave(self) -> None:
        """Say NOT_SERVING for good, before the server stops."""
        await self._servicer.enter_graceful_shutdown()


def add_health(server: grpc.aio.Server, services: Iterable[str] = ()) -> Health:
    """Add the health service to a server that has not started. It says NOT_SERVING until told otherwise."""
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    return Health(servicer, services)
