"""Objects and keywords of the Python interface as settings, and what settings cannot say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cutlayer.codecs import Codec
from cutlayer.config.schema import Config, from_mapping
from cutlayer.config.toml import overridden
from cutlayer.data import DataSource
from cutlayer.errors import ConfigError
from cutlayer.models import ANY_MODEL
from cutlayer.protocol.build import target_of
from cutlayer.protocol.objects import MakeTask, RunObjects, allow_object, object_name
from cutlayer.split.client import MakeOptimizer
from cutlayer.tasks import Task
from cutlayer.tasks import build as build_task
from cutlayer.tasks.own_loss import OwnLossWithMetrics

LossLike = Callable[[Tensor, Tensor], Tensor]
#: A name (`sgd`, `adamw`), or what makes an optimizer of a list of parameters.
OptimizerLike = str | MakeOptimizer


def make_config(
    base: Config | None, settings: Mapping[str, Any] | None, keywords: Mapping[str, Any]
) -> Config:
    """A base, then `section.name` settings, then keywords; those that are None are left as they are."""
    given = {name: value for name, value in keywords.items() if value is not None}
    changes = {name: _plain(value) for name, value in {**(settings or {}), **given}.items()}
    return from_mapping(overridden({} if base is None else base.model_dump(), changes), "settings")


def model_settings(model: nn.Module | str | None, at: str | Sequence[str] | None) -> dict[str, Any]:
    """The settings of a model and its cut."""
    if not isinstance(model, nn.Module | str | None):
        what = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"
        raise ConfigError(f"model is {what}; give a module, such as Net(), or the name of one")
    name = object_name(model) if isinstance(model, nn.Module) else model
    if isinstance(model, nn.Module) and at is None:
        raise ConfigError("at= says where the model is cut: the name of a module, or two for a U-shape")
    if at is not None and not (isinstance(at, str) or (_all_text(at) and len(at) == 2)):
        raise ConfigError(f"at= is the name of a module, such as '1' or 'layer2', or two names; not {at!r}")
    cut = at if at is None or isinstance(at, str) else tuple(at)
    u_shaped = None if cut is None or isinstance(cut, str) else "u-shaped"
    return {"model.name": name, "model.cut": cut, "train.mode": u_shaped}


def optimizer_settings(optimizer: OptimizerLike | None, lr: float | None) -> dict[str, Any]:
    """The settings of an optimizer. The learning rate of one that is made is its own, unless it is given."""
    if isinstance(optimizer, str) and optimizer not in ("sgd", "adamw", "object"):
        raise ConfigError(
            f"optimizer={optimizer!r}: by name there are 'sgd' and 'adamw'. Give others as what makes them: "
            "torch.optim.Adam, or lambda parameters: torch.optim.Adam(parameters, lr=1e-3)"
        )
    if optimizer is None or isinstance(optimizer, str):
        return {"train.optimizer": optimizer, "train.lr": lr}
    made = optimizer([nn.Parameter(torch.zeros(1))]) if callable(optimizer) else None
    if not isinstance(made, torch.optim.Optimizer):
        # Each half needs an optimizer of its own parameters, so that a finished one is of no use.
        given = f"it made {made!r}" if callable(optimizer) else f"not be one: a {type(optimizer).__name__}"
        raise ConfigError(
            f"optimizer= must make a torch optimizer of parameters, {given}. Give a function, such as "
            "lambda parameters: torch.optim.Adam(parameters, lr=1e-3)"
        )
    return {"train.optimizer": "object", "train.lr": made.param_groups[0]["lr"] if lr is None else lr}


def run_objects(
    model: nn.Module | str | None, loss: LossLike | Task | None, optimizer: OptimizerLike | None
) -> RunObjects:
    """What settings cannot say."""
    return RunObjects(
        allow_object(model) if isinstance(model, nn.Module) else ANY_MODEL,
        _task_maker(loss),
        None if optimizer is None or isinstance(optimizer, str) else optimizer,
    )


def _task_maker(loss: Any) -> MakeTask | None:
    if loss is None:
        return None
    if isinstance(loss, Task):
        return lambda train: loss
    if isinstance(loss, type):
        raise ConfigError(f"loss= is the class {loss.__name__}; give an object of it: {loss.__name__}()")
    if not callable(loss):
        raise ConfigError(f"loss= must be a function of outputs and targets, or a task, not {loss!r}")

    def make(train: DataSource) -> Task:
        base = build_task("auto", target_of(train.form))
        return OwnLossWithMetrics(loss, base.targets, base)

    return make


def _all_text(at: object) -> bool:
    return isinstance(at, Sequence) and all(isinstance(name, str) for name in at)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Codec | torch.device) else value
