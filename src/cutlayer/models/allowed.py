"""Which models may be imported, and by whose word.

A model's name can come from this process's own user (a configuration, a command line, the directory of a
run) or from others (the offer of a server, the metadata of an exported half). Importing runs code, so
their names are imported only if the user allowed them. `build` asks here, and nobody else imports models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from torch import nn

from cutlayer.errors import ModelError
from cutlayer.imports import import_by_name, is_import_name

#: Packages that a user installs offer their models under this group of entry points.
GROUP = "cutlayer.models"

Factory = Callable[..., nn.Module]

#: How the name of a model begins that was given as a Python object, and so cannot be built from its name.
OBJECT = "object/"


@dataclass(frozen=True)
class AllowedModels:
    """What may be built beside the built-in models: by default what installed packages offer."""

    names: frozenset[str] = frozenset()
    """As `package.module:factory`."""
    factories: Mapping[str, Factory] = field(default_factory=dict)
    """Functions and classes that are at hand, by the name that somebody else gives them."""
    anything: bool = False
    """Whether any name may be imported: only where all names are this process's own user's."""
    most_parameters: int | None = 500_000_000
    """The largest built-in model, so that a server's settings cannot exhaust a client's memory."""

    @staticmethod
    def of(names: Iterable[str] = (), factories: Mapping[str, Factory] | None = None) -> AllowedModels:
        """These names and factories, once the names have the right form."""
        wrong = [name for name in names if not is_import_name(name)]
        if wrong:
            raise ModelError(f"{wrong[0]!r} cannot be allowed; write it as package.module:factory.")
        return AllowedModels(frozenset(names), dict(factories or {}))

    def find(self, name: str) -> Any | None:
        """What builds the model of that name, imported if need be; None if nothing has such a name.

        Raise ModelError, before anything is imported, for code that was not allowed.
        """
        if name in self.factories:
            return self.factories[name]
        if name.startswith(OBJECT):
            at_hand = ", ".join(self.factories) or "none"
            raise ModelError(
                f"the model of this run was given as a Python object, a {name.removeprefix(OBJECT)}, and "
                f"cannot be built from settings (given here: {at_hand}). Give it again, in Python: "
                "cutlayer.load_run(path, model=...), or cutlayer.train(model, ..., out=path, resume=True)"
            )
        installed = _installed(name)
        if installed is not None:
            return _load(installed)
        if ":" not in name:
            return None
        if not is_import_name(name):
            raise ModelError(f"{name!r} is not of the form package.module:name.")
        if not (self.anything or name in self.names):
            raise ModelError(
                f"the model {name!r} is not built in, and nothing was imported: its name comes from somebody "
                f"else, and importing it runs its code here. If you know and trust it, allow it with "
                f"--allow-model {name}, or in Python with models={{{name!r}: ...}}; or install a package "
                f"that offers it as an entry point of {GROUP}"
            )
        return import_by_name(name, ModelError)


#: For names that come from this process's own user.
ANY_MODEL = AllowedModels(anything=True, most_parameters=None)


def _installed(name: str) -> EntryPoint | None:
    """The entry point of that name, or the one that points to it."""
    found = entry_points(group=GROUP)
    return next((point for point in found if name in (point.name, point.value)), None)


def _load(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:  # the package's code: anything can come
        raise ModelError(f"the model {point.name!r} ({point.value}) cannot be loaded: {error}") from error
