"""A trainer from a configuration: what a run in one process and one over the network have in common."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cutlayer.aggregation.robust import MeanRule
from cutlayer.config.schema import Config
from cutlayer.server.split_server import SplitServer
from cutlayer.training.progress import Display
from cutlayer.training.trainer import Listener, Outputs, Schedule, Trainer


def make_mean_rule(config: Config) -> MeanRule:
    """How what clients share is averaged."""
    return MeanRule(config.robust.mean, config.robust.trim, config.robust.clip_shared)


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
