"""Which tasks of somebody's own may be imported, and by whose word. `build` asks here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cutlayer.errors import TaskError
from cutlayer.imports import AllowedNames
from cutlayer.tasks.base import Task


@dataclass(frozen=True)
class AllowedTasks(AllowedNames[Task | Callable[..., Task]]):
    """What may be taken for a task beside the built-in ones: by default what installed packages offer."""

    kind = "task"
    form = "package.module:Task"
    error = TaskError


#: For names that come from this process's own user.
ANY_TASK = AllowedTasks(anything=True)
