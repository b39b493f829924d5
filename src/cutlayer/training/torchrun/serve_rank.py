"""`serve_rank`: one rank of a server under torchrun. The leader trains as `serve` does; the others follow."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from cutlayer.aggregation.service import SPLIT_SERVER
from cutlayer.config.resolve import refuse_existing_run
from cutlayer.config.schema import Config
from cutlayer.data.spec import DATA_SPEC_FILE, DataSpec
from cutlayer.errors import CheckpointError, CutlayerError, FileError, RankLostError, RecordError
from cutlayer.interrupt import Interrupt
from cutlayer.protocol.admission import Fits
from cutlayer.protocol.device import resolve_device
from cutlayer.protocol.handshake import data_spec_of, settings_for_clients
from cutlayer.ranks.build import Ranks
from cutlayer.ranks.checks import check_alike, check_settings
from cutlayer.ranks.follower import Follower
from cutlayer.ranks.group import RankGroup
from cutlayer.ranks.server import RankServer
from cutlayer.server.split_server import SplitServer
from cutlayer.training import checkpoint
from cutlayer.training.build import build_trainer
from cutlayer.training.progress import Display, Quiet
from cutlayer.training.result import Result
from cutlayer.training.serve import CountedSteps
from cutlayer.training.serving.checks import check_serving, clients_needed
from cutlayer.training.serving.remote_server import remote_server
from cutlayer.training.status.run_status import RunStatus
from cutlayer.training.status.watched_display import WatchedDisplay
from cutlayer.training.trainer import Listener
from cutlayer.wire.grpc.server import Listening, running
from cutlayer.wire.grpc.transport import GrpcTransport
from cutlayer.wire.homes import Homes
from cutlayer.wire.messages.protobuf import message_class

_STOPPED = "the server was stopped; it can be started again with --resume"


def serve_rank(
    config: Config,
    listening: Listening,
    group: RankGroup,
    *,
    advertise: Callable[[int], str],
    exact: bool = False,
    progress: Display | None = None,
    resume: bool = False,
    listeners: Sequence[Listener] = (),
) -> Result | None:
    """Train with the clients of all ranks; the result is the leader's.

    With `resume`, or when torchrun has started the ranks again, the run goes on from its newest checkpoint.
    `advertise` gives the address that clients of this rank call, from the port that it listens on.
    """
    check_serving(config, listening)
    aggregator = listening.aggregator is not None
    check_settings(config, group.world, listening.policy, aggregator=aggregator, exact=exact)
    resolve_device(config.train.device)  # before clients are waited for
    check_alike(group, config, exact=exact)
    resume = group.goes_on() or resume
    directory = Path(config.output.dir)
    steps = checkpoint.steps(directory / "checkpoints") if resume else []
    group.elect(steps[-1] if steps else -1)
    ranks = Ranks(
        group, Homes(config.train.clients, group.place, group.world), exact, config.train.shard_server
    )
    if group.leads:
        refuse_existing_run(directory, resume)
        group.run_begins()
    shown = progress or Quiet()
    earlier = _earlier(group, directory, resume)
    fits = Fits(config, earlier)
    with Interrupt() as interrupt:
        transport = GrpcTransport(
            config.train.clients,
            listening.policy,
            listening.limits,
            check=fits,
            names=listening.clients(SPLIT_SERVER),
            note=shown.note,
            interrupted=lambda: interrupt.requested,
            homes=ranks.homes,
        )
        status = RunStatus(directory, transport.roster) if group.leads else None
        ports: list[int] = []

        def ready(port: int) -> None:
            ports.append(port)
            listening.ready(port)

        own = dataclasses.replace(listening, ready=ready)
        with (
            status or nullcontext(),
            running(transport, own, settings_for_clients(config), confirms=config.codec.follows_link),
        ):
            said = group.talk("listening", address=advertise(ports[0]))
            ranks.homes.publish([one["address"] for one in said])
            if listening.metrics is not None:
                listening.metrics.watch(lambda: transport.connected, lambda: transport.waiting)
            needed = clients_needed(config, listening.policy, directory, earlier) if group.leads else None
            needed = group.talk("needed", clients=needed)[0]["clients"]
            clients, spec = _assemble(transport, group, fits, needed, earlier)

            def make_server() -> SplitServer:
                if group.leads:
                    group.command("build")
                return remote_server(config, transport, clients, spec, ranks=ranks)

            if status is None:
                _follow(group, transport, make_server, interrupt)
                return None
            return _lead(
                group,
                transport,
                interrupt,
                resume,
                lambda: build_trainer(
                    config,
                    make_server,
                    WatchedDisplay(status, shown),
                    listeners=(
                        *listeners,
                        *(() if listening.metrics is None else (CountedSteps(listening.metrics),)),
                    ),
                ),
            )


def _lead(
    group: RankGroup, transport: GrpcTransport, interrupt: Interrupt, resume: bool, make_trainer: Any
) -> Result:
    try:
        trainer = make_trainer()
        try:
            trainer.begin(resume)
            result: Result = trainer.complete(interrupt)
        finally:
            trainer.close()
    except RankLostError:
        raise
    except (FileError, CheckpointError, RecordError):
        group.command("end", kind="stopped")
        raise
    except CutlayerError as error:
        group.command("end", kind="failed", why=str(error))
        raise
    group.command("end", kind="stopped" if result.stopped else "done")
    if result.stopped:
        transport.close("LATER", _STOPPED)
    return result


def _follow(
    group: RankGroup, transport: GrpcTransport, make_server: Callable[[], SplitServer], interrupt: Interrupt
) -> None:
    def make() -> RankServer:
        server = make_server()
        if not isinstance(server, RankServer):
            raise TypeError("a follower needs the server of a rank")
        return server

    try:
        ending = Follower(group, make).run()
    except RankLostError:
        if interrupt.requested:
            # All ranks were told to stop, and the leader has.
            raise KeyboardInterrupt from None
        raise
    if ending.kind == "failed":
        raise CutlayerError(f"the leading rank ended the run: {ending.why}")
    if ending.kind == "stopped":
        transport.close("LATER", _STOPPED)


def _earlier(group: RankGroup, directory: Path, resume: bool) -> DataSpec | None:
    """The data of the run that goes on, as the leader has them in its directory."""
    found = None
    if group.leads and resume and (directory / DATA_SPEC_FILE).exists():
        found = dataclasses.asdict(DataSpec.read(directory))
    said = group.talk("data", spec=found)[0]["spec"]
    return None if said is None else DataSpec.parse(said)


def _assemble(
    transport: GrpcTransport, group: RankGroup, fits: Fits, needed: int | None, earlier: DataSpec | None
) -> tuple[list[Any], DataSpec]:
    """What all clients of all ranks have said of their data. Those that do not fit are waited for anew."""
    kind = message_class("Ready")
    while True:
        own = {
            str(client): base64.b64encode(ready.SerializeToString()).decode()
            for client, ready in enumerate(transport.assemble(needed))
            if ready is not None
        }
        found = {
            int(c): text for one in group.talk("ready", clients=own) for c, text in one["clients"].items()
        }
        clients = [
            kind.FromString(base64.b64decode(found[client])) if client in found else None
            for client in range(transport.clients)
        ]
        spec = earlier or data_spec_of(clients)
        fits.settle(spec)
        transport.recheck()
        left = [client for client in map(int, own) if client in transport.newcomers()]
        if all(one["whole"] for one in group.talk("fit", whole=len(left) == len(own))):
            return clients, spec
        fits.settle(earlier)
