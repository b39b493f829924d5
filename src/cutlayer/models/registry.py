"""Build a model by name: the table of built-in models with their named cuts, or a user's own."""

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, NoReturn

import torch
from torch import nn

from cutlayer.errors import ModelError
from cutlayer.models.airbench import airbench, airbench_bf16
from cutlayer.models.allowed import AllowedModels
from cutlayer.models.gpt import gpt
from cutlayer.models.layers import initialise
from cutlayer.models.mlp import mlp
from cutlayer.models.resnet import resnet18, resnet34
from cutlayer.models.tiny import tiny
from cutlayer.models.user_model import build_user_model
from cutlayer.models.vgg import vgg19
from cutlayer.models.vit import vit
from cutlayer.seeding import seeded


class Cuts(NamedTuple):
    """The modules that the client's part ends with under the named cuts."""

    shallow: str
    medium: str
    deep: str


@dataclass(frozen=True)
class BuiltIn:
    """A built-in model: how to build it, its named cuts, the smallest image it can take."""

    factory: Callable[..., nn.Module]
    cuts: Cuts
    smallest_image: int
    initialised: bool = False
    """Whether the factory has set the weights itself."""
    takes: Literal["images", "tokens", "features"] = "images"
    """Images [C, H, W], sequences of tokens [T], or rows of features [F]."""

    def options(self) -> list[str]:
        """What can be set beside the width, and what the data say."""
        return [name for name in inspect.signature(self.factory).parameters if name in OPTIONS]


# The paper cuts after layers 2/8/15, 2/9/13 and 2/15/27, counted as layers with weights. In a
# ResNet the stem is layer 1 and each block holds two more; the first block boundary at or after
# the layer is taken, because inside a block two tensors cross.
MODELS: dict[str, BuiltIn] = {
    "vgg19": BuiltIn(vgg19, Cuts("layer2", "layer8", "layer15"), smallest_image=32),
    "resnet18": BuiltIn(resnet18, Cuts("layer1.0", "layer2", "layer3"), smallest_image=8),
    "resnet34": BuiltIn(resnet34, Cuts("layer1.0", "layer2", "layer3"), smallest_image=8),
    "airbench": BuiltIn(airbench, Cuts("layer1", "layer2", "layer3"), smallest_image=9, initialised=True),
    "airbench-bf16": BuiltIn(
        airbench_bf16, Cuts("layer1", "layer2", "layer3"), smallest_image=9, initialised=True
    ),
    "tiny": BuiltIn(tiny, Cuts("layer1", "layer2", "layer3"), smallest_image=4),
    "gpt": BuiltIn(
        gpt, Cuts("block1", "block2", "block3"), smallest_image=1, initialised=True, takes="tokens"
    ),
    "mlp": BuiltIn(mlp, Cuts("layer1", "layer2", "layer3"), smallest_image=1, takes="features"),
    "vit": BuiltIn(vit, Cuts("block1", "block2", "block4"), smallest_image=4, initialised=True),
}

#: Settings that some models have.
OPTIONS = ("blocks", "heads", "patch")


def build(
    name: str,
    *,
    classes: int,
    width: int = 64,
    in_channels: int = 3,
    image_size: int = 32,
    context: int = 1,
    vocabulary: int = 0,
    options: Mapping[str, int] | None = None,
    seed: int = 0,
    allowed: AllowedModels | None = None,
) -> nn.Module:
    """Build a model by name, or a user's own by `package.module:factory`.

    Only what is built in or installed is built, unless `allowed` says more: see `AllowedModels`.

    `width` is the number of channels at the beginning, which all others follow: 64 is the model of
    the paper, 16 a thin one for a laptop. The seed alone decides the initial weights; PyTorch's
    global random state is left as it was. Sequences have `context` tokens of a `vocabulary`. `options`
    are those of OPTIONS. A user's factory is called with those of classes, width, in_channels, image_size,
    context and vocabulary, and of the options, that it has parameters for, and initialises its own weights.

    >>> model = build("resnet18", classes=10, width=16)
    """
    settings = {
        "classes": classes,
        "width": width,
        "in_channels": in_channels,
        "image_size": image_size,
        **({"context": context} if vocabulary else {}),
        **(options or {}),
    }
    for setting, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ModelError(f"{setting}={value!r}: expected a whole number of at least 1.")
    if vocabulary:
        settings["vocabulary"] = vocabulary
    with seeded(seed):
        if name not in MODELS:
            factory = (allowed or AllowedModels()).find(name)
            return build_user_model(name, factory, settings) if factory is not None else _unknown(name)
        known = MODELS[name]
        if image_size < known.smallest_image:
            raise ModelError(
                f"{name} needs images of at least {known.smallest_image} pixels a side, not {image_size}."
            )
        if known.takes == "tokens" and not vocabulary:
            settings |= {"context": context, "vocabulary": classes}
        surplus = [option for option in options or {} if option not in known.options()]
        if surplus:
            raise ModelError(
                f"model.{surplus[0]}: {name} has no such option; it has "
                f"{', '.join(known.options()) or 'none'}."
            )
        accepted = inspect.signature(known.factory).parameters
        given = {key: value for key, value in settings.items() if key in accepted}
        _check_size(name, known.factory, given, (allowed or AllowedModels()).most_parameters)
        model = known.factory(**given)
        if not known.initialised:
            initialise(model)
    return model


def _check_size(
    name: str, factory: Callable[..., nn.Module], settings: dict[str, int], most: int | None
) -> None:
    """Refuse a model with more parameters than allowed, before it takes any memory."""
    if most is None:
        return
    try:
        with torch.device("meta"):
            parameters = sum(p.numel() for p in factory(**settings).parameters())
    except (RuntimeError, OverflowError, MemoryError) as error:
        raise ModelError(f"{name} of width {settings['width']} cannot be built: {error}") from error
    if parameters > most:
        raise ModelError(
            f"{name} of width {settings['width']} has {parameters:,} parameters; at most {most:,} are "
            "built at somebody else's word. If you trust this, allow more in Python with "
            "AllowedModels(most_parameters=...)"
        )


def cut_module(name: str, at: str) -> str:
    """The module at which a named cut (shallow, medium, deep) cuts a model of that name.

    Any other `at` is taken for a module's name already and returned as it is.
    """
    if at not in Cuts._fields:
        return at
    if name not in MODELS:
        raise ModelError(f"'{name}' is not built in, so it has no cut '{at}'. Give the name of a module.")
    module: str = getattr(MODELS[name].cuts, at)
    return module


def _unknown(name: str) -> NoReturn:
    near = difflib.get_close_matches(name, MODELS, 1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    raise ModelError(
        f"no model {name!r}.{hint} Built-in models are {', '.join(MODELS)}; your own is given "
        "as package.module:factory."
    )
