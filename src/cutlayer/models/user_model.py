"""A model of somebody's own: what a factory returns."""

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from cutlayer.errors import ModelError


def build_user_model(spec: str, factory: Any, settings: dict[str, int]) -> nn.Module:
    """Call the factory of that name with those of the settings that it has parameters for."""
    if isinstance(factory, nn.Module) or not callable(factory):
        raise ModelError(
            f"'{spec}' is a {type(factory).__name__}, not a function or class that returns a model."
        )
    try:
        model = factory(**_accepted(factory, settings))
    except Exception as error:  # the factory is the user's code: anything can come
        raise ModelError(
            f"'{spec}' could not build a model: {type(error).__name__}: {error}. It is called with "
            f"those of {', '.join(settings)} that it has parameters for."
        ) from error
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"'{spec}' returned a {type(model).__name__}, not an nn.Module. Give a function or "
            "class that returns the model."
        )
    return model


def _accepted(factory: Callable[..., Any], settings: dict[str, int]) -> dict[str, int]:
    parameters = inspect.signature(factory).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return settings
    by_name = {n for n, p in parameters.items() if p.kind is not p.POSITIONAL_ONLY}
    return {name: value for name, value in settings.items() if name in by_name}
