"""`serve`: the server of a run whose clients come over the network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cutlayer.aggregation.orders import Orders
from cutlayer.aggregation.service import SPLIT_SERVER
from cutlayer.config.resolve import refuse_existing_run
from cutlayer.config.schema import Config
from cutlayer.data.spec import DATA_SPEC_FILE, DataSpec
from cutlayer.interrupt import Interrupt
from cutlayer.protocol.admission import Fits
from cutlayer.protocol.device import resolve_device
from cutlayer.protocol.handshake import data_spec_of, settings_for_clients
from cutlayer.protocol.objects import BY_NAME, RunObjects
from cutlayer.server.elastic import NamesFile, read_names
from cutlayer.server.settled_objects import settled_objects
from cutlayer.training.build import build_trainer
from cutlayer.training.progress import Display, Quiet
from cutlayer.training.result import Result
from cutlayer.training.serving.checks import check_serving, clients_needed
from cutlayer.training.serving.remote_server import remote_server
from cutlayer.training.status.run_status import RunStatus
from cutlayer.training.status.watched_display import WatchedDisplay
from cutlayer.training.trainer import Listener
from cutlayer.wire.grpc.server import Listening, running
from cutlayer.wire.grpc.transport import GrpcTransport
from cutlayer.wire.metrics import Metrics


def serve(
    config: Config,
    listening: Listening,
    *,
    progress: Display | None = None,
    resume: bool = False,
    objects: RunObjects = BY_NAME,
    listeners: Sequence[Listener] = (),
    interrupt: Interrupt | None = None,
) -> Result:
    """Train with the clients that connect. With `resume`, continue from the newest whole checkpoint.

    `listeners` are told each step and epoch.
    """
    directory = Path(config.output.dir)
    refuse_existing_run(directory, resume)
    check_serving(config, listening)
    resolve_device(config.train.device)  # before clients are waited for
    shown = progress or Quiet()
    earlier = DataSpec.read(directory) if resume and (directory / DATA_SPEC_FILE).exists() else None
    elastic = listening.policy.elastic
    fits = Fits(config, earlier, elastic=elastic, models=objects.models)
    names = listening.clients(SPLIT_SERVER)
    if elastic:
        names = read_names(directory, resume, names, config.train.clients)
    with interrupt or Interrupt() as interrupt:
        transport = GrpcTransport(
            config.train.clients,
            listening.policy,
            listening.limits,
            check=fits,
            names=names,
            note=shown.note,
            interrupted=lambda: interrupt.requested,
        )
        orders = None
        if listening.aggregator is not None:
            address, security = listening.aggregator
            orders = Orders(address, security, interrupted=lambda: interrupt.requested, note=shown.note)
        status = RunStatus(directory, transport.roster)
        follows_link = config.codec.follows_link
        with status, running(transport, listening, settings_for_clients(config), confirms=follows_link):
            if listening.metrics is not None:
                listening.metrics.watch(lambda: transport.connected, lambda: transport.waiting)
            clients = transport.assemble(clients_needed(config, listening.policy, directory, earlier))
            spec = earlier or data_spec_of(clients)
            fits.settle(spec)
            transport.recheck()
            trainer = build_trainer(
                config,
                lambda: remote_server(config, transport, clients, spec, orders, objects),
                WatchedDisplay(status, shown),
                listeners=(
                    *listeners,
                    *(() if listening.metrics is None else (CountedSteps(listening.metrics),)),
                    *((NamesFile(directory, lambda: transport.names),) if elastic else ()),
                ),
            )
            try:
                trainer.begin(resume)
                with settled_objects():
                    result = trainer.complete(interrupt)
            finally:
                trainer.close()
            if result.stopped:
                # Not complete: clients wait for the server that goes on with it.
                transport.close("LATER", "the server was stopped; it can be started again with --resume")
            return result


class CountedSteps:
    """Tells Prometheus of each step."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def step(self, record: dict[str, Any]) -> None:
        """See `Listener.step`."""
        self._metrics.step()
        self._metrics.traffic(record["bytes"])
        for stage, seconds in record["seconds"].items():
            self._metrics.stage(stage, seconds)

    def epoch(self, record: dict[str, Any]) -> None:
        """See `Listener.epoch`. Steps have told it all."""
