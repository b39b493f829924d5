"""A user's own model, given as `package.module:factory`."""

import importlib
import inspect
import operator
from collections.abc import Callable
from typing import Any

from torch import nn

from cutlayer.errors import ModelError


def build_custom(spec: str, settings: dict[str, int]) -> nn.Module:
    """Import the factory and call it with those of the settings that it has parameters for."""
    factory = _import(spec)
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


def _import(spec: str) -> Callable[..., Any]:
    module_name, _, attribute = spec.partition(":")
    if not module_name or not attribute:
        raise ModelError(f"'{spec}' is not of the form package.module:factory.")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ModelError(
            f"no module '{error.name}' to import '{spec}' from. Install it, or put its directory "
            "on PYTHONPATH."
        ) from error
    except Exception as error:  # importing runs the user's code
        raise ModelError(f"importing '{module_name}' failed: {type(error).__name__}: {error}") from error
    try:
        factory = operator.attrgetter(attribute)(module)
    except AttributeError as error:
        public = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise ModelError(
            f"'{module_name}' has no '{attribute}'. It has: {', '.join(public) or 'no functions'}."
        ) from error
    if isinstance(factory, nn.Module) or not callable(factory):
        raise ModelError(
            f"'{spec}' is a {type(factory).__name__}, not a function or class that returns a model."
        )
    result: Callable[..., Any] = factory
    return result


def _accepted(factory: Callable[..., Any], settings: dict[str, int]) -> dict[str, int]:
    parameters = inspect.signature(factory).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return settings
    by_name = {n for n, p in parameters.items() if p.kind is not p.POSITIONAL_ONLY}
    return {name: value for name, value in settings.items() if name in by_name}
