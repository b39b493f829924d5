"""A trainer from a configuration: what a run in one process and one over the network have in common."""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cutlayer.aggregation.robust import MeanRule
from cutlayer.config.schema import Config
from cutlayer.protocol.build import make_client
from cutlayer.protocol.objects import RunObjects
from cutlayer.protocol.run_codecs import RunCodecs
from cutlayer.server.asynchronous.arrivals import Arrivals
from cutlayer.server.asynchronous.client_model import KeptClientModel
from cutlayer.server.asynchronous.mode import Asynchronous, AsyncMode
from cutlayer.server.participation import AllClients
from cutlayer.server.sampled_rounds import SampledRounds
from cutlayer.server.split_server import MakeParticipation, SplitServer
from cutlayer.split import Part
from cutlayer.training.progress import Display
from cutlayer.training.trainer import Listener, Outputs, Schedule, Trainer


def make_mean_rule(config: Config) -> MeanRule:
    """How what clients share is averaged."""
    return MeanRule(config.robust.mean, config.robust.trim, config.robust.clip_shared)


def make_participation(
    config: Config,
    parts: tuple[Part, ...],
    codecs: RunCodecs,
    arrivals: Callable[[], Arrivals],
    objects: RunObjects,
) -> MakeParticipation:
    """Who takes part in each step. `arrivals` makes what mode async needs to know who comes next."""
    train = config.train
    if not train.clients_per_step and train.mode != "async":
        return AllClients
    # A half of the server's own, with weights of its own: in one process the parts are those of the clients.
    half = make_client(config, copy.deepcopy(parts), objects.make_optimizer)
    if train.clients_per_step:
        return partial(SampledRounds, half)
    kept = KeptClientModel(half, codecs, make_mean_rule(config))
    return partial(AsyncMode, Asynchronous(kept, arrivals(), train.staleness))


def build_trainer(
    config: Config,
    make_server: Callable[[], SplitServer],
    shown: Display,
    *,
    listeners: Sequence[Listener] = (),
    before_step: Callable[[], dict[str, Any]] = dict,
) -> Trainer:
    """The trainer of a configured run."""
    train, output = config.train, config.output
    return Trainer(
        make_server,
        Schedule(train.epochs, train.evaluate_every, train.checkpoint_every, train.evaluate_batch),
        Outputs(
            Path(output.dir),
            output.keep,
            output.tensorboard,
            config.seed,
            config.to_toml(),
            config.identity(),
        ),
        shown,
        listeners=listeners,
        before_step=before_step,
    )
