"""Which tasks of somebody's own may be imported, and by whose word.

A task's name can come from this process's own user or from others, such as the offer of a server. Importing
runs code, so names of others are imported only if the user allowed them. `build` asks here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any

from cutlayer.errors import TaskError
from cutlayer.imports import import_by_name, is_import_name
from cutlayer.tasks.base import Task

#: Packages that a user installs offer their tasks under this group of entry points.
GROUP = "cutlayer.tasks"


@dataclass(frozen=True)
class AllowedTasks:
    """What may be taken for a task beside the built-in ones: by default what installed packages offer."""

    names: frozenset[str] = frozenset()
    """As `package.module:Task`."""
    tasks: Mapping[str, Task | Callable[..., Task]] = field(default_factory=dict)
    """Tasks, or what makes them, that are at hand, by the name that somebody else gives them."""
    anything: bool = False
    """Whether any name may be imported: only where all names are this process's own user's."""

    @staticmethod
    def of(
        names: Iterable[str] = (), tasks: Mapping[str, Task | Callable[..., Task]] | None = None
    ) -> AllowedTasks:
        """These names and tasks, once the names have the right form."""
        wrong = [name for name in names if not is_import_name(name)]
        if wrong:
            raise TaskError(f"{wrong[0]!r} cannot be allowed; write it as package.module:Task")
        return AllowedTasks(frozenset(names), dict(tasks or {}))

    def find(self, name: str) -> Any | None:
        """The task of that name, or what makes it, imported if need be; None if nothing has such a name.

        Raise TaskError, before anything is imported, for code that was not allowed.
        """
        if name in self.tasks:
            return self.tasks[name]
        for point in entry_points(group=GROUP):
            if name in (point.name, point.value):
                try:
                    return point.load()
                except Exception as error:  # the package's code: anything can come
                    raise TaskError(f"the task {name!r} ({point.value}) cannot be loaded: {error}") from error
        if ":" not in name:
            return None
        if not is_import_name(name):
            raise TaskError(f"{name!r} is not of the form package.module:Task")
        if not (self.anything or name in self.names):
            raise TaskError(
                f"the task {name!r} is not built in, and nothing was imported: its name comes from somebody "
                f"else, and importing it runs its code here. If you know and trust it, allow it with "
                f"--allow-task {name}, or in Python with tasks={{{name!r}: ...}}; or install a package that "
                f"offers it as an entry point of {GROUP}"
            )
        return import_by_name(name, TaskError)


#: For names that come from this process's own user.
ANY_TASK = AllowedTasks(anything=True)
