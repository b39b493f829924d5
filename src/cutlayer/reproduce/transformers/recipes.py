"""The models, data, cuts, codecs and seeds of the experiment `transformers`, at each scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutlayer.config.schema import Config, from_mapping
from cutlayer.reproduce.experiment import Request
from cutlayer.reproduce.scales import Scale

#: Labels and specs of the rows, in order of importance; the first two are the decisive ones.
ROWS: dict[str, str] = {
    "none": "none",
    "EMS(2)": "ems:bpe=2.0",
    "QU(4)": "qu:bits=4",
    "MS(0.99, 2)": "ms:ratio=0.99,bits=2",
    "EMS(1)": "ems:bpe=1.0",
    "EMS(3)": "ems:bpe=3.0",
}
DECISIVE = ("none", "EMS(2)")


@dataclass(frozen=True)
class Recipe:
    """A model on its data: the settings of its runs, without cut, codec and seed."""

    name: str
    cuts: tuple[str, ...]
    settings: Mapping[str, Mapping[str, Any]]
    seeds: int = 1
    """How many seeds the decisive rows have; the others have one."""
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
            ("block1",),
            {
                "model": {"name": "gpt", "width": 16, "blocks": 2, "heads": 2},
                "data": {"context": 16},
                "train": _ADAMW | {"clients": 2, "batch_size": 8, "epochs": 1, "lr": 3e-3},
            },
            seeds=2,
        ),
        Recipe(
            "vit",
            ("block1",),
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
            ("block1", "block2"),
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
            seeds=3,
            source="text:tinyshakespeare/input.txt",
        ),
        Recipe(
            "vit",
            ("block1",),
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
# Their scale has no experiment of the paper behind it: the same runs.
RECIPES[Scale.PAPER] = RECIPES[Scale.LAPTOP]


def config(request: Request, folder: Path, recipe: Recipe, at: str, label: str, seed: int) -> Config:
    """The settings of a run."""
    found: dict[str, Any] = {section: dict(values) for section, values in recipe.settings.items()}
    if recipe.source:
        kind, _, path = recipe.source.rpartition(":")
        found["data"]["source"] = f"{kind}:{request.root / path}" if kind else str(request.root / path)
        found["data"]["root"] = str(request.root)
    elif "source" not in found["data"]:
        found["data"]["source"] = f"text:{folder / SMOKE_TEXT}"
    short = label.lower().replace(", ", "-").translate(str.maketrans("", "", "()"))
    found["model"]["cut"] = at
    found["codec"] = {"up": ROWS[label]}
    found["seed"] = seed
    directory = folder / "runs" / f"{recipe.name}-{at}-{short}-s{seed}"
    found["output"] = {"dir": str(directory), "keep": 1, "tensorboard": False}
    return from_mapping(found, directory.name)
