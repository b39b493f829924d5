"""Which models may be imported, and by whose word. `build` asks here, and nobody else imports models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from cutlayer.errors import ModelError
from cutlayer.imports import AllowedNames

Factory = Callable[..., nn.Module]

#: How the name of a model begins that was given as a Python object, and so cannot be built from its name.
OBJECT = "object/"


@dataclass(frozen=True)
class AllowedModels(AllowedNames[Factory]):
    """What may be built beside the built-in models: by default what installed packages offer."""

    kind = "model"
    form = "package.module:factory"
    error = ModelError

    most_parameters: int | None = 500_000_000
    """The largest built-in model, so that a server's settings cannot exhaust a client's memory."""

    def find(self, name: str) -> Any | None:
        """What builds the model of that name. See `AllowedNames.find`."""
        if name.startswith(OBJECT) and name not in self.at_hand:
            at_hand = ", ".join(self.at_hand) or "none"
            raise ModelError(
                f"the model of this run was given as a Python object, a {name.removeprefix(OBJECT)}, and "
                f"cannot be built from settings (given here: {at_hand}). Give it again, in Python: "
                "cutlayer.load_run(path, model=...), or cutlayer.train(model, ..., out=path, resume=True)"
            )
        return super().find(name)


#: For names that come from this process's own user.
ANY_MODEL = AllowedModels(anything=True, most_parameters=None)
