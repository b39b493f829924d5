"""Named recipes: complete settings for the paper's experiments, for a laptop, for a testbed that trains
to the end, and for a first look.

A recipe is the content of a configuration file. `cutlayer train --recipe NAME` runs it, and every
setting can still be overridden. The names are products of the tables below.
"""

from __future__ import annotations

import copy
import difflib
import fnmatch
from typing import Any

from cutlayer.errors import ConfigError

Settings = dict[str, Any]

CUTS = ("shallow", "medium", "deep")

# The paper's policies: ms, sp and rt at the same 2.32 bits an element, qu at the next whole number.
POLICIES = {
    "none": "none",
    "qu": "qu:bits=3",
    "sp": "sp:ratio=0.95875",
    "ms": "ms:ratio=0.99,bits=2",
    "rt": "rt:ratio=0.95875",
}

# Common to the paper's experiments: ten clients with equal parts, gradients averaged every step.
_PAPER_TRAIN: Settings = {
    "clients": 10,
    "mode": "parallel",
    "sync": "step",
    "server_batching": "per_client",
    # The paper does not give its batch size; ten of these make 320.
    "batch_size": 32,
    "optimizer": "sgd",
    "lr": 0.1,
    "momentum": 0.9,
}

# The schedules are those of the paper's published code.
_PAPER: dict[str, Settings] = {
    "vgg19-cifar10": {
        "model": {"name": "vgg19", "width": 64},
        "data": {"source": "cifar10", "partition": "even"},
        "train": _PAPER_TRAIN | {"epochs": 200, "weight_decay": 5e-4, "schedule": "cosine"},
    },
    "resnet18-cifar100": {
        "model": {"name": "resnet18", "width": 64},
        "data": {"source": "cifar100", "partition": "even"},
        "train": _PAPER_TRAIN
        | {
            "epochs": 200,
            "weight_decay": 5e-4,
            "schedule": "steps",
            "milestones": [60, 120, 160],
            "gamma": 0.2,
        },
    },
    "resnet34-imagenet": {
        "model": {"name": "resnet34", "width": 64},
        # Decoded once into files of about 200 GB, which are then read page by page.
        "data": {"source": "imagenet", "size": 224, "cache_dir": "cache", "partition": "even"},
        "train": _PAPER_TRAIN
        | {"epochs": 90, "weight_decay": 1e-4, "schedule": "every", "period": 30, "gamma": 0.1},
    },
}

# Thin versions with the paper's cuts, clients and policies that two CPU cores train in minutes.
_LAPTOP_TRAIN: Settings = _PAPER_TRAIN | {
    "server_batching": "fused",
    "epochs": 5,
    "batch_size": 16,
    "nesterov": True,
    "weight_decay": 5e-4,
    "schedule": "cosine",
    "warmup_epochs": 1,
}
_LAPTOP: dict[str, Settings] = {
    "resnet18-cifar10": {
        "model": {"name": "resnet18", "width": 16},
        "data": {"source": "cifar10", "partition": "even"},
        "train": _LAPTOP_TRAIN,
    },
    "vgg19-cifar10": {
        "model": {"name": "vgg19", "width": 16},
        "data": {"source": "cifar10", "partition": "even"},
        "train": _LAPTOP_TRAIN | {"lr": 0.05},
    },
}

# A small model that is made to be trained to the end on two CPU cores, with all images.
_TESTBED: dict[str, Settings] = {
    "airbench-cifar10": {
        "model": {"name": "airbench-bf16", "width": 64, "layout": "channels_last"},
        "data": {"source": "cifar10", "partition": "even", "augment": "shift-flip"},
        "task": {"label_smoothing": 0.2},
        "train": _PAPER_TRAIN
        | {
            "server_batching": "fused",
            "epochs": 14,
            "batch_size": 50,
            "lr": 0.5,
            "nesterov": True,
            "weight_decay": 1e-3,
            "schedule": "linear",
            "warmup_epochs": 3,
        },
    },
}

# The data set that comes with scikit-learn, so that nothing has to be fetched.
_DIGITS: Settings = {
    "model": {"name": "tiny", "cut": "medium", "width": 16},
    "data": {"source": "digits", "partition": "even"},
    "train": _PAPER_TRAIN
    | {"epochs": 12, "batch_size": 16, "lr": 0.05, "weight_decay": 5e-4, "schedule": "cosine"},
}
# What travels up, down, and between clients. The last compresses everything: smashed data in fewer bits than
# `ms`, which on so small a model lose no accuracy that could be measured.
_DEMO = {
    "none": ("none", "none", "none"),
    "dense": ("dense", "none", "none"),
    "sp": (POLICIES["sp"], "none", "none"),
    "ms": (POLICIES["ms"], "none", "none"),
    "ems": ("ems:bpe=2.0", "ems:bpe=3.0", "ems:bpe=2.0"),
}


# Total traffic: what travels up, down, and between clients, compressed one after the other.
_MS = "ms:ratio=0.99,bits=2,rounding=nearest"
TRAFFIC = {
    "dense": ("none", "none", "none"),
    "up": (_MS, "none", "none"),
    "down8": (_MS, "qu:bits=8", "none"),
    "down4": (_MS, "qu:bits=4", "none"),
    "down-ms": (_MS, _MS, "none"),
    "sync8": (_MS, "qu:bits=8", "qu:bits=8"),
    "sync-sp": (_MS, "qu:bits=8", "sp:ratio=0.99"),
}


def _product(prefix: str, bases: dict[str, Settings]) -> dict[str, Settings]:
    return {
        f"{prefix}/{base}-{cut}-{policy}": _with(settings, codec, cut)
        for base, settings in bases.items()
        for cut in CUTS
        for policy, codec in POLICIES.items()
    }


def _with(settings: Settings, codec: str, cut: str | None = None) -> Settings:
    """The settings with a codec for the smashed data, which is what the paper compresses, and a cut."""
    return _with_codecs(settings, codec, "none", "none", cut)


def _with_codecs(settings: Settings, up: str, down: str, sync: str, cut: str | None = None) -> Settings:
    """The settings with a codec for each direction, and a cut."""
    result = copy.deepcopy(settings)
    result["codec"] = {"up": up, "down": down, "sync": sync}
    if cut is not None:
        result["model"]["cut"] = cut
    return {"seed": 0, **result}


RECIPES: dict[str, Settings] = {
    **{f"demo/digits-{name}": _with_codecs(_DIGITS, *codecs) for name, codecs in _DEMO.items()},
    **_product("laptop", _LAPTOP),
    **_product("testbed", _TESTBED),
    **_product("paper", _PAPER),
    **{f"traffic/digits-{row}": _with_codecs(_DIGITS, *codecs) for row, codecs in TRAFFIC.items()},
    **{
        f"traffic/resnet18-cifar10-{cut}-{row}": _with_codecs(_LAPTOP["resnet18-cifar10"], *codecs, cut)
        for cut in CUTS
        for row, codecs in TRAFFIC.items()
    },
}


def names(pattern: str = "*") -> list[str]:
    """The names of all recipes that match a shell pattern: `paper/*-medium-ms`."""
    return [name for name in RECIPES if fnmatch.fnmatchcase(name, pattern)]


def recipe(name: str) -> Settings:
    """The settings of a recipe; the caller may change them."""
    if name not in RECIPES:
        near = difflib.get_close_matches(name, RECIPES, 3)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise ConfigError(f"there is no recipe {name!r}.{hint} `cutlayer recipes` lists all of them")
    return copy.deepcopy(RECIPES[name])
