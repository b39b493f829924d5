"""`serve`: the server of a run whose clients come over the network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from cutlayer.aggregation.among_clients import ClientAggregation
from cutlayer.aggregation.at_server import ServerAggregation
from cutlayer.aggregation.base import Aggregation
from cutlayer.aggregation.orders import Orders
from cutlayer.aggregation.remote import RemoteAggregation
from cutlayer.aggregation.service import SPLIT_SERVER
from cutlayer.config.resolve import refuse_existing_run
from cutlayer.config.schema import Config
from cutlayer.data.spec import DATA_SPEC_FILE, DataSpec
from cutlayer.errors import ConfigError
from cutlayer.interrupt import Interrupt
from cutlayer.protocol.admission import Fits
from cutlayer.protocol.boundary import Agreed
from cutlayer.protocol.build import (
    make_client,
    make_codecs,
    make_plan,
    make_server,
    make_task,
    prepare_model,
    shares_model,
    vector_sizes,
)
from cutlayer.protocol.device import resolve_device
from cutlayer.protocol.handshake import data_spec_of, digest, settings_for_clients
from cutlayer.protocol.objects import BY_NAME, RunObjects
from cutlayer.protocol.run_codecs import RunCodecs
from cutlayer.protocol.state_bytes import to_bytes
from cutlayer.protocol.state_form import StateForm
from cutlayer.protocol.tensor_forms import Forms, elements_of, forms_at, gradient_forms
from cutlayer.ranks.build import Ranks
from cutlayer.seeding import undisturbed
from cutlayer.server.asynchronous.arrivals import NetworkArrivals
from cutlayer.server.elastic import NamesFile, check_elastic, read_names
from cutlayer.server.remote_clients import RemoteClients
from cutlayer.server.settled_objects import settled_objects
from cutlayer.server.split_server import SplitServer
from cutlayer.split import Part
from cutlayer.split.client import ClientHalf
from cutlayer.split.server import ServerHalf
from cutlayer.split.state import client_state
from cutlayer.split.tensors import call, to_device
from cutlayer.split.weights import device_of
from cutlayer.tasks import ANY_TASK, Task
from cutlayer.training import checkpoint
from cutlayer.training.build import build_trainer, make_mean_rule, make_participation
from cutlayer.training.progress import Display, Quiet
from cutlayer.training.status.run_status import RunStatus
from cutlayer.training.status.watched_display import WatchedDisplay
from cutlayer.training.trainer import Listener, Result
from cutlayer.wire.grpc.server import Listening, running
from cutlayer.wire.grpc.transport import GrpcTransport
from cutlayer.wire.link.model import parse_links
from cutlayer.wire.metrics import Metrics
from cutlayer.wire.policy import Policy


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
    fits = Fits(config, earlier, elastic=elastic)
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


def remote_server(
    config: Config,
    transport: GrpcTransport,
    clients: list[Any],
    spec: DataSpec,
    orders: Orders | None = None,
    objects: RunObjects = BY_NAME,
    ranks: Ranks | None = None,
) -> SplitServer:
    """The server of a run at its very beginning, with clients that have said what their data are.

    With `ranks`, it is that of one rank.
    """
    data = spec.placeholder_data()
    parts = prepare_model(config, data.train, objects.models)[1]
    make, given = objects.make_task, objects.make_optimizer
    task = make_task(config, data.train, ANY_TASK) if make is None else make(data.train)
    half = make_client(config, parts, given)
    sizes, forms = vector_sizes(half), _forms_at_cuts(spec, parts)
    codecs = make_codecs(config, sizes, _largest_tensor(config, forms, parts), of_others=True)
    agreed = Agreed(
        smashed=forms[0],
        clip_smashed=config.robust.clip_smashed,
        tail_gradient=gradient_forms(forms[-1]),
        state=StateForm.of(half),
        loss_at_client=config.train.mode == "u-shaped",
    )
    plan = make_plan(config.train, spec.samples, config.seed)
    make_pool = RemoteClients if ranks is None else ranks.make_pool
    pool = make_pool(
        transport,
        spec,
        [0 if ready is None else ready.test_samples for ready in clients],
        codecs,
        agreed,
        lambda: make_client(config, parts, given),
        shared_model=shares_model(config.train),
        own_states=codecs.feeds_back or config.codec.follows_link,
        digest=digest(settings_for_clients(config)),
        steps_per_epoch=plan.steps_per_epoch,
        largest_message=_largest_message(config, codecs, half, task),
        orders=orders,
        among_clients=config.train.aggregation != "server",
        plan=plan if config.train.clients_per_step else None,
        stateless=config.train.mode == "async",
    )
    make_split_server = SplitServer if ranks is None else ranks.make_server
    return make_split_server(
        make_server(
            config,
            parts,
            task,
            guarded=True,
            given=given,
            kind=ServerHalf if ranks is None else ranks.make_half(forms[0]),
        ),
        plan,
        task,
        codecs,
        pool,
        _aggregation(config, codecs, transport, orders, ranks),
        seed=config.seed,
        batching=config.train.server_batching,
        weighting=config.train.weighting,
        links=parse_links(config.link.spec),
        note_rates=config.codec.rate != "fixed",
        agreed=agreed,
        make_participation=make_participation(
            config, parts, codecs, lambda: NetworkArrivals(transport), objects
        ),
    )


def _aggregation(
    config: Config,
    codecs: RunCodecs,
    transport: GrpcTransport,
    orders: Orders | None,
    ranks: Ranks | None,
) -> Aggregation:
    if ranks is not None:
        return ranks.make_aggregation(codecs, config.train.weighting, transport, make_mean_rule(config))
    if orders is not None:
        return RemoteAggregation(config.train.weighting, transport, orders)
    if config.train.aggregation != "server":
        return ClientAggregation(config.train.weighting, transport)
    return ServerAggregation(codecs, config.train.weighting, transport, make_mean_rule(config))


@torch.no_grad()
def _forms_at_cuts(spec: DataSpec, parts: tuple[Part, ...]) -> list[Forms]:
    """The forms of one sample at each cut: what clients send up, and in a U-shape what comes down to them."""
    x: Any = to_device(spec.preprocess().test(spec.form.zeros(1)[0]), device_of(*parts))
    forms = []
    for i, part in enumerate(parts[: len(parts) - 1 or 1]):
        part.eval()
        with undisturbed():
            x = part(x) if i else call(part, x)
        part.train()
        forms.append(forms_at(x))
    return forms


def _largest_tensor(config: Config, forms: list[Forms], parts: tuple[Part, ...]) -> int:
    """The most elements of any tensor that an honest client sends."""
    features = max(map(elements_of, forms))
    learned: int = sum(t.numel() for part in (parts[0], *parts[2:]) for t in part.state_dict().values())
    return max(learned, features * max(config.train.batch_size, config.train.evaluate_batch))


def _largest_message(config: Config, codecs: RunCodecs, half: ClientHalf, task: Task) -> int:
    """Bytes of the largest message that an honest client sends: a tensor as it is, targets, or its state."""
    elements = codecs.max_elements or 0
    # Weights, buffers, error feedback, and at most two numbers that the optimizer keeps for each weight.
    state = 4 * sum(codecs.vector_sizes or ()) * 4 + len(to_bytes(client_state(half)))
    targets = task.targets.size(max(config.train.batch_size, config.train.evaluate_batch))
    return max(8 * elements, state, targets, 8 * len(task.sum_names)) + (64 << 10)


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


def clients_needed(config: Config, policy: Policy, directory: Path, earlier: DataSpec | None) -> int | None:
    """How many clients have to be there for the run to begin or to go on; None for all."""
    steps = checkpoint.steps(directory / "checkpoints") if earlier is not None else []
    if earlier is None or not steps:
        return policy.quorum if policy.elastic else None
    if steps[-1] >= make_plan(config.train, earlier.samples).total:
        return 0
    return policy.quorum if policy.straggler == "drop" else None


def check_serving(config: Config, listening: Listening) -> None:
    """Raise unless a run with these settings can be served so."""
    if config.train.track_bias:
        raise ConfigError("train.track_bias needs all clients' data in one process: use `cutlayer train`")
    clients, policy = config.train.clients, listening.policy
    check_elastic(policy, config.train.clients_per_step)
    if not policy.elastic:
        check_names(config, listening)
    if config.train.clients_per_step and listening.aggregator is not None:
        raise ConfigError(
            "train.clients_per_step: the server keeps the clients' half for those who are asked next; leave "
            "out --aggregator"
        )
    if policy.straggler == "drop" and listening.aggregator is not None:
        raise ConfigError("an aggregator that runs alone needs every client: use --straggler wait")
    if config.train.aggregation != "server":
        how = f"train.aggregation = {config.train.aggregation}"
        if policy.straggler == "drop":
            raise ConfigError(f"{how} needs every client: use --straggler wait")
        if listening.aggregator is not None:
            raise ConfigError(
                f"with {how} clients average among themselves: leave out "
                "--aggregator, or set train.aggregation to server"
            )
    if config.train.mode == "async" and listening.aggregator is not None:
        raise ConfigError(
            "train.mode: in mode async the server keeps the clients' half and updates it; an aggregator that "
            "runs alone averages what all clients share at the same time: leave out --aggregator"
        )
    if config.link.speeds:
        raise ConfigError(
            "link.speeds: are those of clients that are simulated in one process; here clients are as fast "
            "as they are. Leave them out"
        )
    if policy.straggler == "drop" and config.train.mode == "relay":
        raise ConfigError("relay needs every client in its turn: use --straggler wait")
    if policy.quorum > clients:
        raise ConfigError(f"a quorum of {policy.quorum} of {clients} clients can never come together")


def check_names(config: Config, listening: Listening) -> None:
    """Raise unless every client of the run has a name, where credentials tell names."""
    # An aggregator's token file also names the server that gives it orders.
    clients, names = config.train.clients, listening.clients(SPLIT_SERVER)
    if listening.security.auth and len(names) != clients:
        raise ConfigError(
            f"the run has {clients} clients, but {len(names)} are named; name each in the token "
            "file, or with --names for certificates, or change train.clients"
        )
    if len(set(names)) != len(names):
        raise ConfigError("two clients have the same name")
