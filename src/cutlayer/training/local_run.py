"""A run in one process from its settings: the split server, and all clients behind a loopback."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cutlayer.aggregation.at_server import ServerAggregation, ServerRound
from cutlayer.client.build import build_client
from cutlayer.client.local_clients import LocalClients
from cutlayer.config.schema import Config
from cutlayer.data.federated import FederatedData
from cutlayer.data.spec import DataSpec
from cutlayer.errors import ConfigError
from cutlayer.protocol.boundary import Agreed
from cutlayer.protocol.build import (
    make_clients,
    make_codecs,
    make_plan,
    make_server,
    make_task,
    prepare_data,
    prepare_model,
    vector_sizes,
)
from cutlayer.protocol.client_memory import server_memories
from cutlayer.protocol.objects import BY_NAME, RunObjects
from cutlayer.protocol.run_codecs import codec_of
from cutlayer.rates.adaptive import AdaptiveRate, RateBounds, client_madds
from cutlayer.rates.base import Rate
from cutlayer.rates.scheduled import fixed_or_scheduled
from cutlayer.server.asynchronous.arrivals import VirtualArrivals
from cutlayer.server.evaluation import evaluate_on
from cutlayer.server.results import Evaluation, StepResult
from cutlayer.server.simulated_work import SimulatedWork
from cutlayer.server.split_server import SplitServer
from cutlayer.split import Part
from cutlayer.split.tensors import to_device
from cutlayer.split.weights import assign, device_of
from cutlayer.tasks import ANY_TASK, Task
from cutlayer.training.build import make_mean_rule, make_participation
from cutlayer.wire.link.model import parse_links
from cutlayer.wire.meter import Meter


class LocalRun:
    """A run whose clients, data and whole model are at hand.

    >>> run = local_run(config)
    >>> while not run.done:
    ...     result = run.step()
    """

    def __init__(
        self,
        server: SplitServer,
        clients: LocalClients,
        config: Config,
        data: FederatedData,
        whole: nn.Module,
    ) -> None:
        self.server = server
        self.clients = clients
        self.config = config
        self.data = data
        self._whole = whole

    @property
    def number(self) -> int:
        """How many steps are complete."""
        return self.server.number

    @property
    def done(self) -> bool:
        """Whether all steps are complete."""
        return self.server.done

    @property
    def meter(self) -> Meter:
        """The bytes of training."""
        return self.server.transport.meter

    def step(self) -> StepResult:
        """Run the next step."""
        return self.server.step()

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything: tensors by name, and the rest as plain JSON."""
        return self.server.state()

    def restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Continue exactly where `state` was taken."""
        self.server.restore(tensors, state)

    def evaluate(self) -> Evaluation:
        """The model as it is now, on the first client's test set, with the codecs in place."""
        return evaluate_on(self.server, *self.clients.evaluator(), self.config.train.evaluate_batch)

    def model(self) -> nn.Module:
        """The whole model as it is now: the mean of the clients' halves, and the server's."""
        with self.server.transport.meter.apart():
            mean = self.server.average_clients()
        if not isinstance(mean, ServerRound):
            raise TypeError("the clients of a run in one process share with its server")
        half = self.clients.halves[0]
        whole = copy.deepcopy(self._whole)
        with torch.no_grad():
            for part in (self.server.half.part, *half.model.parts):
                whole.load_state_dict(part.state_dict(), strict=False)
            named = (
                (half.model.parameter_names, whole.get_parameter),
                (half.model.buffer_names, whole.get_buffer),
            )
            for frame, (names, get) in zip(mean.exact(self.number).frames, named, strict=True):
                if frame:
                    assign([get(name) for name in names], self.server.codecs.decode(frame))
        return whole.eval()


def local_run(
    config: Config,
    data: FederatedData | None = None,
    task: Task | None = None,
    objects: RunObjects = BY_NAME,
) -> LocalRun:
    """Build a run as configured. `data` and `task` can be given by a caller who has them already."""
    data = prepare_data(config) if data is None else data
    whole, parts = prepare_model(config, data.train, objects.models)
    halves = make_clients(config, parts, objects.make_optimizer)
    if task is None:
        make = objects.make_task
        task = make_task(config, data.train, ANY_TASK) if make is None else make(data.train)
    rate, spec = _rates(config, data, parts), DataSpec.of(data)
    clients = LocalClients(
        [
            # The first client is the evaluator, who has the test set.
            build_client(config, data, number, half, task=task, evaluator=number == 0, rate=rate(number))
            for number, half in enumerate(halves)
        ],
        spec,
        len(data.test),
    )
    codecs = make_codecs(config, vector_sizes(halves[0]))
    plan = make_plan(config.train, [len(part) for part in data.parts], config.seed)
    work = _work(config, data, parts)

    def arrivals() -> VirtualArrivals:
        if work is None:
            raise TypeError("mode async in one process needs to know how long clients compute")
        return VirtualArrivals(work, parse_links(config.link.spec))

    server = SplitServer(
        make_server(config, parts, task, given=objects.make_optimizer),
        plan,
        task,
        codecs,
        clients,
        ServerAggregation(codecs, config.train.weighting, clients.transport, make_mean_rule(config)),
        seed=config.seed,
        batching=config.train.server_batching,
        weighting=config.train.weighting,
        links=parse_links(config.link.spec),
        note_rates=config.codec.rate != "fixed",
        agreed=Agreed(clip_smashed=config.robust.clip_smashed),
        make_participation=make_participation(config, parts, codecs, arrivals, objects),
        work=work,
        memories=server_memories(config, spec, parts),
    )
    return LocalRun(server, clients, config, data, whole)


def _rates(config: Config, data: FederatedData, parts: Sequence[Part]) -> Callable[[int], Rate]:
    """What makes the rate of each client."""
    codecs, links = config.codec, parse_links(config.link.spec)
    up = codec_of(codecs.up)
    if not codecs.follows_link:
        return lambda client: fixed_or_scheduled(codecs.rate, up, config.train.epochs)
    if not links:
        raise ConfigError(
            "codec.rate: in one process there is no link to measure; give one, as --link 20mbit,30ms"
        )
    madds = _madds(data, parts)
    bounds, speed = RateBounds.parse(codecs.rate), config.link.device
    return lambda client: AdaptiveRate.simulated(bounds, up, links[client % len(links)], madds, speed)


def _work(config: Config, data: FederatedData, parts: Sequence[Part]) -> SimulatedWork | None:
    """How long clients compute, where that is simulated: with speeds of their own, and in mode async."""
    link = config.link
    if not link.speeds and config.train.mode != "async":
        return None
    return SimulatedWork(_madds(data, parts), link.device, link.speeds, link.jitter, config.seed)


def _madds(data: FederatedData, parts: Sequence[Part]) -> int:
    """Multiply-adds of a client's parts for one sample."""
    sample = data.train.batch(torch.zeros(1, dtype=torch.int64))[0]
    return client_madds(parts, to_device(data.augment.test(sample), device_of(*parts)))
