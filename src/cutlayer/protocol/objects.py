"""What a run gets as Python objects instead of by name in its settings: model, task, optimizer.

Settings then only say that there is an object (`OBJECT`). Both ends of a network have to be given theirs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from cutlayer.data import DataSource
from cutlayer.models import ANY_MODEL, AllowedModels
from cutlayer.models.allowed import OBJECT
from cutlayer.split.client import MakeOptimizer
from cutlayer.tasks.base import Task

MakeTask = Callable[[DataSource], Task]


@dataclass(frozen=True)
class RunObjects:
    """Objects of the user's; what is None comes from the settings."""

    models: AllowedModels = ANY_MODEL
    make_task: MakeTask | None = None
    """Makes the task for the data that are trained on."""
    make_optimizer: MakeOptimizer | None = None


#: All from the settings, which are this process's own user's.
BY_NAME = RunObjects()


def object_name(value: object) -> str:
    """How settings call an object: by its class."""
    return f"{OBJECT}{type(value).__name__}"


def allow_object(model: nn.Module, *, anything: bool = True) -> AllowedModels:
    """Let settings mean this model by `object_name(model)`. Each use gets a copy of it, as it is now."""
    kept = copy.deepcopy(model)
    return AllowedModels(at_hand={object_name(model): lambda: copy.deepcopy(kept)}, anything=anything)
