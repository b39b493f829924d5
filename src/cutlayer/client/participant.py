"""A client on a machine of its own: it loads its data, builds its half, and answers the server."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from cutlayer.aggregation.client_exchange import EXCHANGES, ClientExchange
from cutlayer.aggregation.gloo import Gloo
from cutlayer.aggregation.robust import MeanRule
from cutlayer.client.build import build_client
from cutlayer.client.split_client import SplitClient
from cutlayer.config.schema import Config
from cutlayer.data import Augment, DataSource, Statistics, load, load_both, partition_data
from cutlayer.data.federated import FederatedData
from cutlayer.data.spec import DataSpec
from cutlayer.errors import CutlayerError, DataError, RefusedError
from cutlayer.models import AllowedModels, Factory
from cutlayer.protocol.admission import statistics_problem
from cutlayer.protocol.build import (
    load_settings,
    make_client,
    make_codecs,
    make_task,
    prepare_model,
    vector_sizes,
)
from cutlayer.protocol.client_memory import memory_bytes
from cutlayer.protocol.device import resolve_device
from cutlayer.protocol.handshake import config_from_offer, describe, settings_for_clients
from cutlayer.protocol.objects import MakeTask
from cutlayer.protocol.run_codecs import RunCodecs, codec_of
from cutlayer.protocol.tensor_forms import Forms, forms_at_cuts, largest_tensor, learned
from cutlayer.rates.adaptive import AdaptiveRate, RateBounds
from cutlayer.rates.base import Rate
from cutlayer.rates.scheduled import fixed_or_scheduled
from cutlayer.split.client import MakeOptimizer
from cutlayer.tasks import AllowedTasks, Task
from cutlayer.wire.limits import largest_from_server
from cutlayer.wire.link.bandwidth import Gauge
from cutlayer.wire.messages.base import Message

# What settings of somebody else's can make of data and models.
_UNUSABLE = (ArithmeticError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)


@contextmanager
def _from_somebody_else(what: str) -> Iterator[None]:
    """Whatever the server's words make inside is its fault, and no traceback."""
    try:
        yield
    except CutlayerError:
        raise
    except _UNUSABLE as error:
        raise RefusedError(
            f"the server's {what} cannot be used here ({type(error).__name__}: {error})"
        ) from error


class Participant:
    """Answers the server's offer, and then its messages.

    `whole` says that the data are those of all clients: this one takes its part as a run in one process
    would. Otherwise they are its own, all of them.
    """

    def __init__(
        self,
        source: str,
        root: str = ".",
        *,
        whole: bool = False,
        cache: str | None = None,
        rate: str | None = None,
        allow_models: Iterable[str] = (),
        models: Mapping[str, Factory] | None = None,
        allow_tasks: Iterable[str] = (),
        tasks: Mapping[str, Task | Callable[..., Task]] | None = None,
        lazy: bool = False,
        data: tuple[DataSource, DataSource] | None = None,
        make_task: MakeTask | None = None,
        make_optimizer: MakeOptimizer | None = None,
        device: str = "cpu",
    ) -> None:
        """`rate` narrows or widens the bounds of the rate for this client, where clients choose.

        The server names the model. One that is not built in is imported only if `allow_models` has its name,
        as `package.module:factory`; `models` has functions and classes to take for the names that it gives.
        For the task, `allow_tasks` and `tasks` say the same. `lazy` reads samples as they are needed.
        `data` are the client's own, train and test, where they are at hand; `make_task` and `make_optimizer`
        are needed if the server's run has its own, too. `device` is where this client computes.
        """
        resolve_device(device)  # before anything is loaded
        self.device = device
        self.source = source
        self.root = root
        self.whole = whole
        self.cache = cache
        self.bounds = None if rate is None else RateBounds.parse(rate)
        self.lazy = lazy
        self._allowed = AllowedModels.of(tuple(allow_models), models)
        self._allowed_tasks = AllowedTasks.of(tuple(allow_tasks), tasks)
        self.gauge = Gauge()
        """Whoever carries the messages tells it how fast they leave."""
        self.client = 0
        self.settings = ""
        self.config: Config | None = None
        self._given = data
        self._make_task = make_task
        self._make_optimizer = make_optimizer
        self._data: FederatedData | None = None
        self._split_client: SplitClient | None = None
        self._tests = True
        self._features: Forms | None = None
        self._largest_message = 0

    def prepare(self, offer: Any) -> Any:
        """Load what the run needs; what to say of it."""
        with _from_somebody_else("offer"):
            return self._prepare(offer)

    def _prepare(self, offer: Any) -> Any:
        if self.settings and (self.settings, self.client) != (offer.settings, offer.client):
            raise RefusedError(
                "the server now offers another run, or another place in it; start the client again "
                "to take part"
            )
        where = {"source": self.source, "root": self.root, "cache_dir": self.cache}
        self.config = config_from_offer(offer.settings, where, self.device)
        if offer.client >= self.config.train.clients:
            raise RefusedError(f"the server offers place {offer.client} of {self.config.train.clients}")
        self.client, self.settings = offer.client, offer.settings
        if self.bounds is not None and not self.config.codec.follows_link:
            raise RefusedError(
                "the server's settings fix the rate; start it with --rate auto to let clients choose theirs"
            )
        if self._data is None:
            self._data = self._load(self.config)
        # From the settings as understood here, not as received: a difference shows in the digest.
        ready = describe(self._data, self.client, settings_for_clients(self.config))
        if not self._tests:
            ready.test_samples = 0
        parts = prepare_model(self.config, self._data.train, self._allowed)[1]
        forms, samples = forms_at_cuts(DataSpec.of(self._data), parts), self.config.train.batch_size
        if len(forms) > 1:
            # What comes down in an evaluation is of as many test samples as the server asks for.
            self._features, samples = forms[-1], max(samples, len(self._data.test))
        self._largest_message = largest_from_server(largest_tensor(forms, parts, samples), learned(parts))
        # In a State, after a resume.
        self._largest_message += memory_bytes(self.config, len(self._data.parts[self.client]), forms[0])
        make_task(self.config, self._data.train, self._allowed_tasks)
        return ready

    def begin(self, welcome: Any) -> None:
        """The run begins, or goes on from a checkpoint: a fresh half."""
        with _from_somebody_else("welcome"):
            self._begin(welcome)

    def _begin(self, welcome: Any) -> None:
        if self._data is None or self.config is None:
            raise RefusedError("the server welcomes a client that has no settings yet")
        data = self._data
        statistics = Statistics(tuple(welcome.mean), tuple(welcome.std))
        wrong = statistics_problem(statistics.mean, statistics.std, data.train.form)
        if wrong is not None:
            raise RefusedError(f"the server's welcome cannot be: {wrong}")
        data = dataclasses.replace(data, augment=dataclasses.replace(data.augment, statistics=statistics))
        parts = prepare_model(self.config, data.train, self._allowed)[1]
        half = make_client(self.config, parts, self._make_optimizer)
        rate = self._rate(self.config)
        task = (
            make_task(self.config, data.train, self._allowed_tasks)
            if self._make_task is None
            else self._make_task(data.train)
        )
        self._split_client = build_client(
            self.config,
            data,
            self.client,
            half,
            task=task,
            evaluator=self._tests,
            rate=rate,
            features=self._features,
        )

    @property
    def largest_message(self) -> int:
        """Bytes of the largest message that an honest server sends: a tensor, or a client's state."""
        return self._largest_message

    @property
    def epochs(self) -> int:
        """How many epochs the run has; 0 before the server's offer."""
        return 0 if self.config is None else self.config.train.epochs

    def exchange(self, gloo: Gloo | None) -> ClientExchange | None:
        """This client's part where clients average among themselves; None if the server does."""
        config = self.config
        if config is None or config.train.aggregation == "server":
            return None
        rule = MeanRule(config.robust.mean, config.robust.trim, config.robust.clip_shared)
        return EXCHANGES[config.train.aggregation](gloo or Gloo(), self.client, config.train.clients, rule)

    def exchange_codecs(self) -> RunCodecs:
        """The run's codecs, for shares of other clients: with the sizes that these must have."""
        if self._split_client is None or self.config is None:
            raise RefusedError("the server begins an exchange before the welcome")
        sizes = vector_sizes(self._split_client.half)
        codecs = make_codecs(self.config, sizes, max(*sizes, 1), of_others=True)
        return dataclasses.replace(codecs, device=torch.device("cpu"))  # gloo adds up there

    def handle(self, message: Message) -> Iterable[Message]:
        """The answers to a message."""
        if self._split_client is None:
            raise RefusedError("a message before the welcome")
        return self._split_client.handle_from_network(message)

    def _rate(self, config: Config) -> Rate:
        up, rate = codec_of(config.codec.up), config.codec.rate
        if not config.codec.follows_link:
            return fixed_or_scheduled(rate, up, config.train.epochs)
        return AdaptiveRate.measured(self.bounds or RateBounds.parse(rate), up, self.gauge.take)

    def _load(self, config: Config) -> FederatedData:
        settings = config.data
        how: dict[str, Any] = {"root": self.root, "cache_dir": self.cache, "lazy": self.lazy}
        how |= load_settings(config)
        clients = config.train.clients
        if self.whole:
            train, test = self._given or load_both(self.source, limit=settings.limit, **how)
            parts = partition_data(settings.partition, train, clients, config.seed)
            # Only its own samples stay in memory.
            own = train.select(parts[self.client])
        else:
            train, test = self._own(how)
            own = train
        nothing = torch.arange(0)
        mine = torch.arange(len(own))
        shares = tuple(mine if client == self.client else nothing for client in range(clients))
        return FederatedData(own, test, Augment.of(train, settings.augment), shares)

    def _own(self, how: dict[str, Any]) -> tuple[DataSource, DataSource]:
        """Its own samples, and a test part if it has one; only the first client needs it."""
        if self._given is not None:
            return self._given
        try:
            return load_both(self.source, **how)
        except DataError:
            if self.client == 0:
                raise
            train = load(self.source, "train", **how)
            self._tests = False
            return train, train.select(torch.tensor([0]))
