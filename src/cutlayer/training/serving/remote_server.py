"""The split server of a run over the network, from its settings and what clients have said of their data."""

from __future__ import annotations

from typing import Any

from cutlayer.aggregation.among_clients import ClientAggregation
from cutlayer.aggregation.at_server import ServerAggregation
from cutlayer.aggregation.base import Aggregation
from cutlayer.aggregation.orders import Orders
from cutlayer.aggregation.remote import RemoteAggregation
from cutlayer.config.schema import Config
from cutlayer.data.spec import DataSpec
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
from cutlayer.protocol.client_memory import server_memories
from cutlayer.protocol.handshake import digest, settings_for_clients
from cutlayer.protocol.objects import BY_NAME, RunObjects
from cutlayer.protocol.run_codecs import RunCodecs
from cutlayer.protocol.state_bytes import to_bytes
from cutlayer.protocol.state_form import StateForm
from cutlayer.protocol.tensor_forms import forms_at_cuts, gradient_forms, largest_tensor
from cutlayer.ranks.build import Ranks
from cutlayer.server.asynchronous.arrivals import NetworkArrivals
from cutlayer.server.remote_clients import RemoteClients
from cutlayer.server.split_server import SplitServer
from cutlayer.split.client import ClientHalf
from cutlayer.split.server import ServerHalf
from cutlayer.split.state import client_state
from cutlayer.tasks import ANY_TASK, Task
from cutlayer.training.build import make_mean_rule, make_participation
from cutlayer.wire.grpc.transport import GrpcTransport
from cutlayer.wire.link.model import parse_links


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
    sizes, forms = vector_sizes(half), forms_at_cuts(spec, parts)
    samples = max(config.train.batch_size, config.train.evaluate_batch)
    codecs = make_codecs(config, sizes, largest_tensor(forms, parts, samples), of_others=True)
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
        memories=server_memories(config, spec, parts),
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


def _largest_message(config: Config, codecs: RunCodecs, half: ClientHalf, task: Task) -> int:
    """Bytes of the largest message that an honest client sends: a tensor as it is, targets, or its state."""
    elements = codecs.max_elements or 0
    # Weights, buffers, error feedback, and at most two numbers that the optimizer keeps for each weight.
    state = 4 * sum(codecs.vector_sizes or ()) * 4 + len(to_bytes(client_state(half)))
    targets = task.targets.size(max(config.train.batch_size, config.train.evaluate_batch))
    return max(8 * elements, state, targets, 8 * len(task.sum_names)) + (64 << 10)
