"""Examples: the inputs with which a model is called, by name, when it is traced by running it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from cutlayer.errors import CutError


@dataclass(frozen=True)
class Example:
    """Tensors of the form that a model takes, and what else it is called with. Values do not matter."""

    tensors: dict[str, Tensor]
    positional: bool
    fixed: dict[str, Any] = field(default_factory=dict)
    """Keywords that are no tensors; the parts are cut for these values."""

    def call(self, model: nn.Module, inputs: Mapping[str, Tensor]) -> Any:
        """Call a model with these inputs in the way of the example."""
        if self.positional:
            return model(*inputs.values(), **self.fixed)
        return model(**inputs, **self.fixed)


def example_of(model: nn.Module, given: Any) -> Example:
    """An example from what a user gives: a tensor, several as a tuple, or a dict of keywords."""
    if isinstance(given, Example):
        return given
    if isinstance(given, Mapping):
        tensors = {str(name): value for name, value in given.items() if isinstance(value, Tensor)}
        fixed = {str(name): value for name, value in given.items() if name not in tensors}
        if not tensors:
            raise CutError("the example has no tensor; give those with which the model is called")
        return Example(tensors, False, _without_cache(model) | fixed)
    several = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if not several or not all(isinstance(value, Tensor) for value in several):
        raise CutError(
            f"an example is a tensor, a tuple of tensors or a dict of keywords, not {type(given).__name__}"
        )
    names = _positional_names(model)
    names += [f"input_{i}" for i in range(len(names), len(several))]
    return Example(dict(zip(names, several, strict=False)), True, _without_cache(model))


def transformers_example(model: nn.Module) -> Example | None:
    """An example for a model of the transformers package, made from its configuration; None for others."""
    config, main = getattr(model, "config", None), getattr(model, "main_input_name", None)
    if config is None or not isinstance(main, str):
        return None
    names, device = _parameters(model), next(model.parameters()).device
    if main == "input_ids":
        tokens = torch.zeros(2, 8, dtype=torch.int64, device=device)
        tensors = {"input_ids": tokens}
        if "attention_mask" in names:
            tensors["attention_mask"] = torch.ones_like(tokens)
    elif main == "pixel_values" and hasattr(config, "image_size"):
        size = config.image_size
        height, width = (size, size) if isinstance(size, int) else (size[0], size[1])
        channels = getattr(config, "num_channels", 3)
        tensors = {"pixel_values": torch.zeros(2, channels, height, width, device=device)}
    else:
        return None
    return Example(tensors, False, _without_cache(model))


def _without_cache(model: nn.Module) -> dict[str, Any]:
    # A cache of keys and values is for generation. It is an object that blocks change, and cannot cross.
    return {"use_cache": False} if hasattr(model, "config") and "use_cache" in _parameters(model) else {}


def _parameters(model: nn.Module) -> list[str]:
    base = getattr(model, "get_base_model", None)  # under adapters of the peft package
    inner = base() if callable(base) else model
    return list(inspect.signature(inner.forward).parameters)


def _positional_names(model: nn.Module) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = inspect.signature(model.forward).parameters.values()
    return [parameter.name for parameter in found if parameter.kind in kinds]
