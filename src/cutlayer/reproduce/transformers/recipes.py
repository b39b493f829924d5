"""The models, data, cuts, codecs and seeds of the experiment `transformers`, at each scale."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutlayer.config.schema import Config, from_mapping
from cutlayer.reproduce.experiment import Request
from cutlayer.reproduce.scales import Scale

#: Labels and specs of the rows.
ROWS: dict[str, str] = {
    "none": "none",
    "EMS(2)": "ems:bpe=2.0",
    "QU(4)": "qu:bits=4",
    "EMS(3)": "ems:bpe=3.0",
    "EMS(1)": "ems:bpe=1.0",
    "MS(0.99, 2)": "ms:ratio=0.99,bits=2",
}
DECISIVE = ("none", "EMS(2)")
OTHERS = tuple(label for label in ROWS if label not in DECISIVE)


@dataclass(frozen=True)
class Recipe:
    """A model on its data: the settings of its runs, without cut, codec and seed."""

    name: str
    settings: Mapping[str, Mapping[str, Any]]
    source: str = ""
    """Where the data lie under the root, with a kind before it, as text:; empty: made or installed."""


_ADAMW: dict[str, Any] = {
    "clients": 10,
    "optimizer": "adamw",
    "weight_decay": 0.01,
    "schedule": "linear",
    "clip_gradient": 1.0,
    "server_batching": "fused",
}
SMOKE_TEXT = "smoke.txt"
"""Written into the experiment's folder: the smallest scale needs nothing to be fetched."""

RECIPES: dict[Scale, tuple[Recipe, ...]] = {
    Scale.SMOKE: (
        Recipe(
            "gpt",
            {
                "model": {"name": "gpt", "width": 16, "blocks": 2, "heads": 2},
                "data": {"context": 16},
                "train": _ADAMW | {"clients": 2, "batch_size": 8, "epochs": 1, "lr": 3e-3},
            },
        ),
        Recipe(
            "vit",
            {
                "model": {"name": "vit", "width": 16, "blocks": 2, "heads": 2, "patch": 4},
                "data": {"source": "digits", "limit": 200},
                "train": _ADAMW | {"clients": 2, "batch_size": 20, "epochs": 1, "lr": 3e-3},
            },
        ),
    ),
    Scale.LAPTOP: (
        Recipe(
            "gpt",
            {
                "model": {"name": "gpt", "width": 128, "blocks": 4, "heads": 4},
                "data": {"context": 128},
                "train": _ADAMW
                | {
                    "batch_size": 2,
                    "epochs": 1,
                    "lr": 3e-3,
                    "warmup_epochs": 0.1,
                    "evaluate_batch": 50,
                    "checkpoint_every": 100,
                },
            },
            source="text:tinyshakespeare/input.txt",
        ),
        Recipe(
            "vit",
            {
                "model": {"name": "vit", "width": 64, "blocks": 4, "heads": 4, "patch": 4},
                "data": {"limit": 5_000, "augment": "none"},
                "train": _ADAMW
                | {
                    "batch_size": 8,
                    "epochs": 3,
                    "lr": 3e-3,
                    "warmup_epochs": 0.2,
                    "evaluate_every": 0,
                    "evaluate_batch": 100,
                    "checkpoint_every": 100,
                },
            },
            source="cifar10",
        ),
    ),
}


@dataclass(frozen=True)
class Runs:
    """Some runs of a recipe: all rows at one cut, with each seed."""

    recipe: str
    cut: str
    rows: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    tested: bool = False
    """Whether weights that were trained without compression are tested with all codecs, too."""


#: The most important runs first, so that an experiment that is stopped has these.
PLANS: dict[Scale, tuple[Runs, ...]] = {
    Scale.SMOKE: (
        Runs("gpt", "block1", DECISIVE, tested=True),
        Runs("gpt", "block1", DECISIVE, (1,)),
        Runs("gpt", "block1", ("QU(4)",)),
        Runs("vit", "block1", DECISIVE),
    ),
    Scale.LAPTOP: (
        Runs("gpt", "block1", DECISIVE, tested=True),
        Runs("vit", "block1", DECISIVE),
        Runs("gpt", "block2", DECISIVE, tested=True),
        Runs("gpt", "block1", DECISIVE, (1, 2)),
        Runs("gpt", "block1", OTHERS),
        Runs("vit", "block1", OTHERS),
        # More pairs of the decisive rows: training is chaotic at this length, so that only pairs narrow the
        # interval. More validation text would not: all runs are tested on the same whole tenth.
        Runs("gpt", "block2", DECISIVE, (1, 2)),
        Runs("gpt", "block1", DECISIVE, (3, 4)),
        Runs("gpt", "block2", OTHERS),
    ),
}
# The paper has no transformers: a larger scale is the same.
RECIPES[Scale.PAPER], PLANS[Scale.PAPER] = RECIPES[Scale.LAPTOP], PLANS[Scale.LAPTOP]


def config(request: Request, folder: Path, recipe: Recipe, at: str, spec: str, seed: int) -> Config:
    """The settings of a run."""
    found: dict[str, Any] = {section: dict(values) for section, values in recipe.settings.items()}
    if recipe.source:
        kind, _, path = recipe.source.rpartition(":")
        found["data"]["source"] = f"{kind}:{request.root / path}" if kind else str(request.root / path)
        found["data"]["root"] = str(request.root)
    elif "source" not in found["data"]:
        found["data"]["source"] = f"text:{folder / SMOKE_TEXT}"
    short = re.sub(r"[^a-z0-9.]+", "-", spec.removesuffix(".0"))
    found["model"]["cut"] = at
    found["codec"] = {"up": spec}
    found["seed"] = seed
    directory = folder / "runs" / f"{recipe.name}-{at}-{short}-s{seed}"
    found["output"] = {"dir": str(directory), "keep": 1, "tensorboard": False}
    return from_mapping(found, directory.name)
