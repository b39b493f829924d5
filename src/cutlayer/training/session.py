"""A run in one process: the loop, all clients, and everything that a checkpoint needs of them."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cutlayer.client.split_client import OWN, Worker
from cutlayer.config.schema import Config
from cutlayer.data.federated import FederatedData
from cutlayer.data.spec import DataSpec
from cutlayer.errors import CheckpointError, ConfigError
from cutlayer.protocol.build import (
    make_clients,
    make_server,
    prepare_data,
    prepare_model,
    shared_sizes,
)
from cutlayer.protocol.plan import Plan
from cutlayer.protocol.run_codecs import resolve
from cutlayer.rates.adaptive import AdaptiveRate, RateBounds, client_madds
from cutlayer.rates.base import Rate
from cutlayer.rates.scheduled import fixed_or_scheduled
from cutlayer.server.evaluation import current, evaluate
from cutlayer.server.results import Outcome, Scored
from cutlayer.server.split_server import Loop
from cutlayer.server.timeline import Timeline
from cutlayer.split import Part
from cutlayer.split.client import ClientHalf
from cutlayer.split.state import client_state, restore_client, restore_server, server_state, under
from cutlayer.split.vectors import assign
from cutlayer.training.gradient_bias import track_bias
from cutlayer.wire.link.model import parse_links
from cutlayer.wire.loopback import Loopback
from cutlayer.wire.meter import Meter
from cutlayer.wire.transport import apart


class Session:
    """Training on the loopback transport. Steps reseed PyTorch's global generator; see `train`.

    >>> session = Session(config)
    >>> while not session.done:
    ...     outcome = session.step()
    """

    def __init__(self, config: Config, data: FederatedData | None = None) -> None:
        self.config = config
        self.data = prepare_data(config) if data is None else data
        self._whole, parts = prepare_model(config, self.data.train)
        self.server = make_server(config, parts)
        self.halves = make_clients(config, parts)
        self.meter = Meter()
        rate = self._rates(parts)
        # The first client is the evaluator, who has the test set.
        self.workers = [
            Worker.build(config, self.data, client, half, evaluator=client == 0, rate=rate(client))
            for client, half in enumerate(self.halves)
        ]
        self.plan = Plan(config.train, [len(part) for part in self.data.parts])
        transport = Loopback([worker.handle for worker in self.workers], self.meter)
        self.loop = Loop(config, self.plan, self.server, transport, self.data.train.classes)
        self.loop.crossings.sizes = shared_sizes(self.halves[0])

    @property
    def number(self) -> int:
        """How many steps are complete."""
        return self.loop.number

    @property
    def done(self) -> bool:
        """Whether all steps are complete."""
        return self.loop.number >= self.plan.total

    @property
    def timeline(self) -> Timeline:
        """Where the time goes."""
        return self.loop.timeline

    def data_spec(self) -> DataSpec:
        """The data, without the data."""
        return DataSpec.of(self.data)

    def outlook(self) -> dict[str, Any]:
        """What compression will do to the gradients of the next step, where that is to be recorded."""
        tracked = self.config.train.track_bias
        return {"bias": track_bias(self)} if tracked and self.number % tracked == 0 else {}

    def step(self) -> Outcome:
        """Run the next step."""
        return self.loop.step()

    def evaluate(self) -> Scored:
        """The model as it is now, on the test set, with the codecs in place."""
        return evaluate(self.loop, len(self.data.test), self.config.train.evaluate_batch)

    def model(self) -> nn.Module:
        """The whole model as it is now: the mean of the clients' halves, and the server's."""
        with apart(self.loop.transport):
            mean, number = current(self.loop)
            message = mean.for_evaluation(number)
        half = self.halves[0]
        whole = copy.deepcopy(self._whole)
        with torch.no_grad():
            for part in (self.server.part, *half.model.parts):
                whole.load_state_dict(part.state_dict(), strict=False)
            named = (
                (half.model.parameter_names, whole.get_parameter),
                (half.model.buffer_names, whole.get_buffer),
            )
            for frame, (names, get) in zip(message.frames, named, strict=True):
                if frame:
                    assign([get(name) for name in names], self.loop.crossings.decode(frame))
        return whole.eval()

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything: tensors by name, and the rest as plain JSON."""
        tensors = {f"server.{name}": t for name, t in server_state(self.server).items()}
        for i, half in enumerate(self._models()):
            tensors |= {f"client.{i}.{name}": t for name, t in client_state(half).items()}
        if self.halves[0].shared and self.halves[0].buffers:
            tensors["clients.buffers"] = torch.stack([half.buffer_vector() for half in self.halves])
        for i, worker in enumerate(self.workers):
            tensors |= {f"client.{i}.{OWN}{name}": t for name, t in worker.own_state().items()}
        tensors |= self.loop.aggregator.state()
        return tensors, self.loop.state()

    def restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Continue exactly where `state` was taken."""
        number = int(state["number"])
        restore_server(self.server, under("server.", tensors))
        for i, half in enumerate(self._models()):
            restore_client(half, under(f"client.{i}.", tensors), number)
        if self.halves[0].shared and self.halves[0].buffers:
            if len(tensors.get("clients.buffers", ())) != len(self.halves):
                raise CheckpointError("the checkpoint is of a run with another number of clients")
            for half, vector in zip(self.halves, tensors["clients.buffers"], strict=True):
                half.load_buffers(vector)
        for i, worker in enumerate(self.workers):
            worker.restore_own(under(f"client.{i}.{OWN}", tensors))
        self.loop.aggregator.restore(tensors)
        self.loop.restore(state)

    def _rates(self, parts: Sequence[Part]) -> Callable[[int], Rate]:
        """What makes the rate of each client."""
        codecs, links = self.config.codec, parse_links(self.config.link.spec)
        up = resolve(codecs.up)
        if not codecs.follows_link:
            return lambda client: fixed_or_scheduled(codecs.rate, up, self.config.train.epochs)
        if not links:
            raise ConfigError(
                "codec.rate: in one process there is no link to measure; give one, as --link 20mbit,30ms"
            )
        madds = client_madds(parts, self.data.augment.test(self.data.train.images[:1]))
        bounds, speed = RateBounds.parse(codecs.rate), self.config.link.device
        return lambda client: AdaptiveRate.simulated(bounds, up, links[client % len(links)], madds, speed)

    def _models(self) -> list[ClientHalf]:
        """One half for each model that there is: a single one if clients share it."""
        return self.halves[:1] if self.halves[0].shared else self.halves
