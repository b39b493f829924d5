"""`serve`: the server of a run whose clients come over the network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import torch

from cutlayer.aggregation.remote import Orders
from cutlayer.config.resolve import refuse_existing_run
from cutlayer.config.schema import Config
from cutlayer.data.spec import DATA_SPEC_FILE, DataSpec
from cutlayer.errors import ConfigError, CutlayerError, RollbackError
from cutlayer.interrupt import Interrupt
from cutlayer.protocol.handshake import Fits, data_spec_of, settings_for_clients
from cutlayer.protocol.plan import Plan
from cutlayer.server.network import NetworkSession
from cutlayer.server.results import Result
from cutlayer.training import checkpoint
from cutlayer.training.progress import Display, Quiet
from cutlayer.training.trainer import Driver
from cutlayer.wire import log
from cutlayer.wire.grpc.event_loop import background
from cutlayer.wire.grpc.health import add_health
from cutlayer.wire.grpc.options import server_options
from cutlayer.wire.grpc.service import Service
from cutlayer.wire.grpc.transport import Hub
from cutlayer.wire.limits import Limits
from cutlayer.wire.messages.protobuf import TRAINING
from cutlayer.wire.metrics import Metrics
from cutlayer.wire.policy import Policy
from cutlayer.wire.security.credentials import ServerSecurity

# How long the last messages may take to reach the clients.
_FAREWELL = 5.0

#: The name that the split server's credential has at an aggregator that runs alone.
SPLIT_SERVER = "split-server"


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
    aggregator: Orders | None = None
    """The aggregator, if it runs alone."""
    ready: Callable[[int], None] = lambda port: None
    """Called with the port when clients can come."""

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of clients. An aggregator's file also names the server that gives it orders."""
        return tuple(name for name in self.names or self.security.names if name != SPLIT_SERVER)


def serve(
    config: Config, listening: Listening, *, progress: Display | None = None, resume: bool = False
) -> Result:
    """Train with the clients that connect. With `resume`, continue from the newest whole checkpoint."""
    directory = Path(config.output.dir)
    refuse_existing_run(directory, resume)
    _check(config, listening)
    shown = progress or Quiet()
    earlier = DataSpec.read(directory) if resume and (directory / DATA_SPEC_FILE).exists() else None
    hub = Hub(config.train.clients, listening.policy, listening.limits, Fits(config, earlier))
    hub.note = shown.note
    with torch.random.fork_rng(devices=[]), Interrupt() as interrupt, running(hub, config, listening):
        hub.interrupted = lambda: interrupt.requested
        if listening.aggregator is not None:
            listening.aggregator.interrupted, listening.aggregator.note = hub.interrupted, shown.note
        if listening.metrics is not None:
            listening.metrics.watch(lambda: hub.connected, lambda: hub.waiting)
        clients = hub.assemble(_needed(config, listening.policy, directory, earlier))
        session = NetworkSession(
            config, hub, clients, earlier or data_spec_of(clients), listening.metrics, listening.aggregator
        )
        driver = Driver(config, session, directory, shown)
        try:
            driver.begin(resume)
            return _complete(driver, session, hub, interrupt)
        finally:
            driver.close()


def _needed(config: Config, policy: Policy, directory: Path, earlier: DataSpec | None) -> int | None:
    """How many clients have to be there for the run to begin or to go on; None for all."""
    steps = checkpoint.steps(directory / "checkpoints") if earlier is not None else []
    if earlier is None or not steps:
        return None
    if steps[-1] >= Plan(config.train, earlier.samples).total:
        return 0
    return policy.quorum if policy.straggler == "drop" else None


def _complete(driver: Driver, session: NetworkSession, hub: Hub, interrupt: Interrupt) -> Result:
    """Run to the end, going back to the last checkpoint whenever a client has lost its state."""
    while True:
        try:
            session.start()
            return driver.complete(interrupt)
        except RollbackError as error:
            reason = str(error)
        session.reset()
        driver.rewind()
        log.event("rollback", "warning", step=session.number, reason=reason)
        hub.note(f"{reason}; going back to step {session.number}")
        hub.dismiss("AGAIN", f"the run goes on from step {session.number}: {reason}")
        hub.assemble(None if hub.patient else hub.policy.quorum)


@contextmanager
def running(hub: Hub, config: Config, listening: Listening, *handlers: Any) -> Iterator[None]:
    """A gRPC server for the hub's clients. On the way out everybody is told why."""
    code, reason = "LATER", "the server stops"
    server = background().run(_start(hub, config, listening, handlers))
    try:
        yield
        code, reason = "DONE", "the run is complete"
    except KeyboardInterrupt:
        reason = "the server was stopped; it can be started again with --resume"
        raise
    except CutlayerError as error:
        code, reason = "REFUSED", f"the run ended: {error}"
        raise
    finally:
        hub.close(code, reason)
        log.event("server-stopped", reason=reason, received=sorted(hub.received))
        background().run(server.stop(_FAREWELL), 2 * _FAREWELL)


async def _start(hub: Hub, config: Config, listening: Listening, handlers: Sequence[Any]) -> Any:
    server = grpc.aio.server(options=server_options(listening.limits))
    security = listening.security
    names = listening.clients
    service = Service(
        hub,
        settings_for_clients(config),
        security.identify,
        names,
        aggregator=listening.aggregator.address if listening.aggregator else "",
        link=listening.link,
        metrics=listening.metrics,
        confirms=config.codec.follows_link,
    )
    health = add_health(server, (TRAINING,))
    server.add_generic_rpc_handlers((service.handler(), *handlers))
    port = security.bind(server, listening.address, insecure=listening.insecure)
    await server.start()
    await health.serving(True)
    log.event("server-listening", port=port, clients=config.train.clients)
    listening.ready(port)
    return server


def _check(config: Config, listening: Listening) -> None:
    if config.train.track_bias:
        raise ConfigError("train.track_bias needs all clients' data in one process: use `cutlayer train`")
    check_names(config, listening)
    clients, policy = config.train.clients, listening.policy
    if policy.straggler == "drop" and listening.aggregator is not None:
        raise ConfigError("an aggregator that runs alone needs every client: use --straggler wait")
    if config.train.aggregation == "allreduce":
        if policy.straggler == "drop":
            raise ConfigError("train.aggregation = allreduce needs every client: use --straggler wait")
        if listening.aggregator is not None:
            raise ConfigError(
                "with train.aggregation = allreduce clients average among themselves: leave out "
                "--aggregator, or set train.aggregation to server"
            )
    if policy.straggler == "drop" and config.train.mode == "relay":
        raise ConfigError("relay needs every client in its turn: use --straggler wait")
    if policy.quorum > clients:
        raise ConfigError(f"a quorum of {policy.quorum} of {clients} clients can never come together")


def check_names(config: Config, listening: Listening) -> None:
    """Raise unless every client of the run has a name, where credentials tell names."""
    clients, names = config.train.clients, listening.clients
    if listening.security.auth and len(names) != clients:
        raise ConfigError(
            f"the run has {clients} clients, but {len(names)} are named; name each in the token "
            "file, or with --names for certificates, or change train.clients"
        )
    if len(set(names)) != len(names):
        raise ConfigError("two clients have the same name")
