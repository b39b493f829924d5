"""`cutlayer.train`: a model, where it is cut, and data; a trained model and its figures come back."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from pathlib import Path
from typing import Unpack

from torch import nn

from cutlayer.api.callbacks import Callbacks
from cutlayer.api.data import DataLike, federated
from cutlayer.api.keywords import RunKeywords, display, refuse_unknown, resolve
from cutlayer.api.result import Result
from cutlayer.api.settings import run_objects
from cutlayer.errors import ConfigError
from cutlayer.interrupt import Interrupt
from cutlayer.training import result as results
from cutlayer.training.records import read
from cutlayer.training.train import train_objects


def train(
    model: nn.Module | str | None = None,
    *,
    train: DataLike | str | None = None,
    test: DataLike | None = None,
    out: str | Path | None = None,
    **keywords: Unpack[RunKeywords],
) -> Result:
    """Train a model that is split between clients and a server, all in this process.

        result = cutlayer.train(model, at="2", train=(x, y), test=(u, v), clients=10, codec="ems:bpe=1.0")
        result.model, result.accuracy, result.bytes["up/smashed"]

    `model` is any module, which is copied, or the name of a built-in one; `at` is the module behind which it
    is cut, or two for a U-shape. Data are (inputs, targets), data sets, or `train="cifar10"`. With `out` the
    run is kept there.

    Keywords, all optional: `at`, `clients`, `codec`, `down`, `loss` (a function of outputs and targets, or a
    task), `optimizer` (a name or what makes one of parameters, whose learning rate is then followed), `lr`,
    `epochs`, `batch_size`, `mode`, `device`, `precision`, `seed`, `callbacks` (which get an `Event` for each
    step, evaluation and epoch), `resume` (from the last checkpoint in `out`; more epochs than before extend
    the run) and `progress`. `config` and `settings` (`{"train.sync": 20}`) have everything else that
    `cutlayer train` knows; keywords come on top.
    """
    refuse_unknown("train", keywords)
    resume = keywords.get("resume", False)
    with contextlib.ExitStack() as stack:
        if resume and out is None:
            raise ConfigError("resume needs out=, the directory of a run that was begun")
        directory = Path(out) if out is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        named = train if isinstance(train, str) else None
        source = named if named is not None or train is None else "object"
        temporary = {"output.tensorboard": False} if out is None else {}
        resolved = resolve(model, keywords, directory, {"data.source": source}, **temporary)
        if train is None and resolved.data.source == "object":
            raise ConfigError("the data of this run were given as objects; give them again: train=, test=")
        if train is None and (test is not None or _says_no_data(model, keywords)):
            raise ConfigError("train= is missing: (inputs, targets), a data set, or a name such as 'cifar10'")
        if not isinstance(train, str | None) and test is None:
            raise ConfigError("test= is missing: the data to evaluate on, in the form of train=")
        data = None
        if not isinstance(train, str | None) and test is not None:
            data = federated(train, test, resolved)
        interrupt = Interrupt()
        found, run = train_objects(
            resolved,
            progress=display(keywords),
            resume=resume,
            data=data,
            objects=run_objects(model, keywords.get("loss"), keywords.get("optimizer")),
            listeners=[Callbacks(keywords.get("callbacks", ()), interrupt)],
            interrupt=interrupt,
        )
        return make_result(found, run.model(), None if out is None else directory)


def _says_no_data(model: nn.Module | str | None, keywords: RunKeywords) -> bool:
    """Whether a model is given as an object without a word about data: the default ones are not meant."""
    named = keywords.get("config") is not None or "data.source" in (keywords.get("settings") or {})
    return isinstance(model, nn.Module) and not named and not keywords.get("resume")


def make_result(found: results.Result, model: nn.Module | None, kept: Path | None) -> Result:
    """What a user gets of a run."""
    fields = {field.name for field in dataclasses.fields(Result)} & set(vars(found))
    return Result(
        **{name: getattr(found, name) for name in fields - {"directory"}},
        trained=model,
        evaluation=found.scored,
        records=list(read(found.directory / "records.jsonl")),
        directory=kept,
    )
