"""The keywords that `cutlayer.train` and `cutlayer.serve` share, and the settings that they stand for."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import nn

from cutlayer.api.callbacks import Callback
from cutlayer.api.settings import LossLike, OptimizerLike, make_config, model_settings, optimizer_settings
from cutlayer.codecs import Codec
from cutlayer.config.schema import Config, load
from cutlayer.tasks.base import Task
from cutlayer.training import progress as displays
from cutlayer.training.progress import Display, Mode


class RunKeywords(TypedDict, total=False):
    """All optional. What is left out, or None, is as `config` or the defaults have it."""

    at: str | Sequence[str] | None
    """The module behind which the model is cut, or two for a U-shape."""
    clients: int | None
    codec: str | Codec | None
    """Of smashed data."""
    down: str | Codec | None
    """Of gradients on their way to clients."""
    loss: LossLike | Task | None
    """A function of outputs and targets, or a task."""
    optimizer: OptimizerLike | None
    """A name, or what makes an optimizer of parameters, whose learning rate is then followed."""
    lr: float | None
    epochs: int | None
    batch_size: int | None
    mode: str | None
    device: str | torch.device | None
    precision: str | None
    seed: int | None
    callbacks: Sequence[Callback]
    """They get an `Event` for each step, evaluation and epoch."""
    resume: bool
    """Go on from the last checkpoint in `out`; more epochs than before extend the run."""
    config: Config | None
    settings: Mapping[str, Any] | None
    """Everything else that `cutlayer train` knows, as {"train.sync": 20}."""
    progress: Display | Mode


_SETTINGS = {
    "clients": "train.clients",
    "codec": "codec.up",
    "down": "codec.down",
    "epochs": "train.epochs",
    "batch_size": "train.batch_size",
    "device": "train.device",
    "precision": "train.precision",
    "seed": "seed",
}


def refuse_unknown(function: str, keywords: RunKeywords) -> None:
    """Raise TypeError, as Python does, for a keyword that there is none of."""
    known = sorted(RunKeywords.__annotations__)
    for name in keywords.keys() - set(known):
        near = difflib.get_close_matches(name, known, 1)
        hint = f". Did you mean '{near[0]}'?" if near else f"; there are: {', '.join(known)}"
        raise TypeError(f"{function}() got an unexpected keyword argument '{name}'{hint}")


def resolve(
    model: nn.Module | str | None, keywords: RunKeywords, out: Path, own: Mapping[str, Any], **base: Any
) -> Config:
    """The settings of a run: `base`, those given as `config` and `settings`, the keywords, and `own`.

    `own` are settings of the function itself. A run that is resumed has those that it began with.
    """
    config = keywords.get("config")
    if keywords.get("resume") and config is None and (out / "config.toml").is_file():
        config = load(out / "config.toml")
    given: Mapping[str, Any] = keywords
    found = {
        **model_settings(model, keywords.get("at")),
        **optimizer_settings(keywords.get("optimizer"), keywords.get("lr")),
        **{setting: given.get(name) for name, setting in _SETTINGS.items()},
        **own,
        "output.dir": str(out),
    }
    if keywords.get("mode") is not None:
        found["train.mode"] = keywords["mode"]
    return make_config(config, {**base, **(keywords.get("settings") or {})}, found)


def display(keywords: RunKeywords) -> Display:
    """Where progress is shown."""
    found = keywords.get("progress", "quiet")
    return displays.display(found) if isinstance(found, str) else found
