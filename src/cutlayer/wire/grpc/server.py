"""A gRPC server for the clients of a run: where it listens, and how long it stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import grpc

from cutlayer.errors import CheckpointError, CutlayerError, FileError, RankLostError, RecordError
from cutlayer.wire import log
from cutlayer.wire.grpc.event_loop import background
from cutlayer.wire.grpc.guard.connections import Connections
from cutlayer.wire.grpc.guard.gate import Gate
from cutlayer.wire.grpc.health import add_health
from cutlayer.wire.grpc.options import server_options
from cutlayer.wire.grpc.service import Service
from cutlayer.wire.grpc.transport import GrpcTransport
from cutlayer.wire.grpc.waiting import MANY
from cutlayer.wire.limits import Limits
from cutlayer.wire.messages.protobuf import TRAINING
from cutlayer.wire.metrics import Metrics
from cutlayer.wire.policy import Policy
from cutlayer.wire.security.credentials import ClientSecurity, ServerSecurity

# How long the last messages may take to reach the clients.
_FAREWELL = 5.0


@dataclass(frozen=True)
class Listening:
    """Where and how a server listens."""

    address: str = "127.0.0.1:50551"
    security: ServerSecurity = field(default_factory=ServerSecurity)
    insecure: bool = False
    names: Sequence[str] = ()
    """The clients by name, in the order of their numbers, where credentials tell names."""
    policy: Policy = field(default_factory=Policy)
    limits: Limits = field(default_factory=Limits)
    link: str = ""
    """The link that clients play which have none of their own."""
    metrics: Metrics | None = None
    aggregator: tuple[str, ClientSecurity] | None = None
    """The address of an aggregator that runs alone, and the credentials to give it orders."""
    ready: Callable[[int], None] = lambda port: None
    """Called with the port when clients can come."""

    def clients(self, *others: str) -> tuple[str, ...]:
        """The names of clients. `others` are names of the token file that are no clients."""
        return tuple(name for name in self.names or self.security.names if name not in others)


@contextmanager
def running(
    transport: GrpcTransport, listening: Listening, settings: str, *handlers: Any, confirms: bool = False
) -> Iterator[None]:
    """A gRPC server for a transport's clients, who are offered `settings`. On the way out all are told why.

    With `confirms` every message is acknowledged when it arrives, so that clients can measure their uplink.
    """
    code, reason = "LATER", "the server stops"
    connections = Connections(listening.limits)
    server = background().run(_start(transport, listening, settings, handlers, confirms, connections))
    try:
        with background().resting() if transport.clients >= MANY else nullcontext():
            yield
        code, reason = "DONE", "the run is complete"
    except KeyboardInterrupt:
        reason = "the server was stopped; it can be started again with --resume"
        raise
    except (FileError, CheckpointError, RecordError):
        # Its operator is told which ones, and can mend it; clients need not know where they are.
        reason = "the server cannot write its files and stops; the run goes on when it is started again"
        raise
    except RankLostError:
        reason = "a rank of the server was lost; the run goes on when all are started again"
        raise
    except CutlayerError as error:
        code, reason = "REFUSED", f"the run ended: {error}"
        raise
    finally:
        transport.close(code, reason)
        log.event("server-stopped", reason=reason, received=sorted(transport.received))
        background().run(server.stop(_FAREWELL), 2 * _FAREWELL)
        background().run(connections.__aexit__())


async def _start(
    transport: GrpcTransport,
    listening: Listening,
    settings: str,
    handlers: Sequence[Any],
    confirms: bool,
    connections: Connections,
) -> Any:
    limits, security = listening.limits, listening.security
    gate = Gate(security.identify, limits, metrics=listening.metrics, admitted=connections.admitted)
    server = grpc.aio.server(interceptors=(gate,), options=server_options(limits))
    service = Service(
        transport,
        settings,
        security.identify,
        security.revision,
        aggregator=listening.aggregator[0] if listening.aggregator else "",
        link=listening.link,
        metrics=listening.metrics,
        confirms=confirms,
    )
    health = add_health(server, (TRAINING,))
    server.add_generic_rpc_handlers((service.handler(), *handlers))
    port = security.bind(server, listening.address, insecure=listening.insecure)
    connections.port = port
    await connections.__aenter__()
    await server.start()
    await health.serving(True)
    log.event("server-listening", port=port, clients=transport.clients)
    listening.ready(port)
    return server
