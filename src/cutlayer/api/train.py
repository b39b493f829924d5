"""`cutlayer.train`: a model, where it is cut, and data; a trained model and its figures come back."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cutlayer.api.callbacks import Callback, Callbacks
from cutlayer.api.data import DataLike, federated
from cutlayer.api.result import Result
from cutlayer.api.settings import (
    LossLike,
    OptimizerLike,
    make_config,
    model_settings,
    optimizer_settings,
    run_objects,
)
from cutlayer.codecs import Codec
from cutlayer.config.schema import Config, load
from cutlayer.errors import ConfigError
from cutlayer.interrupt import Interrupt
from cutlayer.tasks.base import Task
from cutlayer.training import progress as displays
from cutlayer.training import trainer
from cutlayer.training.progress import Display, Mode
from cutlayer.training.records import read
from cutlayer.training.train import train_objects


def train(
    model: nn.Module | str | None = None,
    *,
    at: str | Sequence[str] | None = None,
    train: DataLike | str | None = None,
    test: DataLike | None = None,
    clients: int | None = None,
    codec: str | Codec | None = None,
    down: str | Codec | None = None,
    loss: LossLike | Task | None = None,
    optimizer: OptimizerLike | None = None,
    lr: float | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    mode: str | None = None,
    device: str | torch.device | None = None,
    precision: str | None = None,
    seed: int | None = None,
    callbacks: Sequence[Callback] = (),
    out: str | Path | None = None,
    resume: bool = False,
    config: Config | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: Display | Mode = "quiet",
) -> Result:
    """Train a model that is split between clients and a server, all in this process.

        result = cutlayer.train(model, at="2", train=(x, y), test=(u, v), clients=10, codec="ems:bpe=1.0")
        result.model, result.accuracy, result.bytes["up/smashed"]

    `model` is any module, which is copied, or the name of a built-in one; `at` is the module behind which it
    is cut, or two for a U-shape. Data are (inputs, targets), data sets, or `train="cifar10"`. `loss` is a
    function of outputs and targets, or a task; `optimizer` a name or what makes one of parameters, whose
    learning rate is then followed. Callbacks get an `Event` for each step, evaluation and epoch.

    `config` and `settings` (`{"train.sync": 20}`) have everything else that `cutlayer train` knows; keywords
    come on top. With `out` the run is kept there, and goes on from its last checkpoint with `resume`; more
    epochs than before extend it.
    """
    with contextlib.ExitStack() as stack:
        if resume and out is None:
            raise ConfigError("resume needs out=, the directory of a run that was begun")
        if resume and config is None and Path(out or "", "config.toml").is_file():
            config = load(Path(out or "", "config.toml"))
        directory = Path(out) if out is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        named = train if isinstance(train, str) else None
        keywords = {
            **model_settings(model, at),
            **optimizer_settings(optimizer, lr),
            "data.source": named if named is not None or train is None else "object",
            "train.clients": clients,
            "codec.up": codec,
            "codec.down": down,
            "train.epochs": epochs,
            "train.batch_size": batch_size,
            "train.device": device,
            "train.precision": precision,
            "seed": seed,
            "output.dir": str(directory),
        }
        if mode is not None:
            keywords["train.mode"] = mode
        temporary = {"output.tensorboard": False} if out is None else {}
        resolved = make_config(config, {**temporary, **(settings or {})}, keywords)
        if train is None and resolved.data.source == "object":
            raise ConfigError("the data of this run were given as objects; give them again: train=, test=")
        if not isinstance(train, str | None) and test is None:
            raise ConfigError("test= is missing: the data to evaluate on, in the form of train=")
        data = None
        if not isinstance(train, str | None) and test is not None:
            data = federated(train, test, resolved)
        interrupt = Interrupt()
        found, run = train_objects(
            resolved,
            progress=displays.display(progress) if isinstance(progress, str) else progress,
            resume=resume,
            data=data,
            objects=run_objects(model, loss, optimizer),
            listeners=[Callbacks(callbacks, interrupt)],
            interrupt=interrupt,
        )
        return make_result(found, run.model(), None if out is None else directory)


def make_result(found: trainer.Result, model: nn.Module | None, kept: Path | None) -> Result:
    """What a user gets of a run."""
    fields = {field.name for field in dataclasses.fields(Result)} & set(vars(found))
    return Result(
        **{name: getattr(found, name) for name in fields - {"directory"}},
        trained=model,
        evaluation=found.scored,
        records=list(read(found.directory / "records.jsonl")),
        directory=kept,
    )
