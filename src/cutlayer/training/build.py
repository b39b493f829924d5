"""A trainer from a configuration: what a run in one process and one over the network have in common."""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cutlayer.aggregation.robust import MeanRule
from cutlayer.config.schema import Config
from cutlayer.protocol.build import make_client
from cutlayer.protocol.objects import RunObjects
from cutlayer.protocol.plan import Plan
from cutlayer.server.sampled_rounds import SampledRounds
from cutlayer.server.split_server import SplitServer
from cutlayer.split import Part
from cutlayer.training.progress import Display
from cutlayer.training.trainer import Listener, Outputs, Schedule, Trainer
from cutlayer.wire.transport import Transport


def make_mean_rule(config: Config) -> MeanRule:
    """How what clients share is averaged."""
    return MeanRule(config.robust.mean, config.robust.trim, config.robust.clip_shared)


def make_rounds(
    config: Config, parts: tuple[Part, ...], plan: Plan, transport: Transport, objects: RunObjects
) -> SampledRounds | None:
    """What keeps the clients' half where only a sample of them takes part; None where all do."""
    if not config.train.clients_per_step:
        return None
    # Weights of its own: in one process the parts are those of the clients.
    half = make_client(config, copy.deepcopy(parts), objects.make_optimizer)
    return SampledRounds(half, plan, transport)


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
