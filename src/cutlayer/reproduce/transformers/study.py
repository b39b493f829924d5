"""The experiment `transformers`: one training run a cell, and its validation loss against its bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cutlayer.files import write_atomically
from cutlayer.reproduce.cell_records import Record
from cutlayer.reproduce.experiment import Cell, Request
from cutlayer.reproduce.transformers.findings import conclude
from cutlayer.reproduce.transformers.recipes import DECISIVE, RECIPES, ROWS, SMOKE_TEXT, Recipe, config
from cutlayer.training import records
from cutlayer.training.progress_bar import ProgressBar
from cutlayer.training.train import train

__all__ = ["cells", "conclude", "name", "prepare", "settings"]

name = "transformers"

_SENTENCE = "to be, or not to be: that is the question. "


def settings(request: Request) -> dict[str, Any]:
    """See `Experiment`."""
    return {"recipes": {recipe.name: recipe.settings for recipe in RECIPES[request.scale]}}


def prepare(request: Request, bar: ProgressBar) -> None:
    """See `Experiment`."""
    if any(not recipe.source for recipe in RECIPES[request.scale]):
        write_atomically(request.out / name / SMOKE_TEXT, _SENTENCE * 80, parents=True)


def cells(request: Request) -> list[Cell]:
    """See `Experiment`: the most important first, so that a run that is cut short has these."""
    found = [
        (recipe, at, label, number)
        for recipe in RECIPES[request.scale]
        for at in recipe.cuts
        for number in range(recipe.seeds)
        for label in (DECISIVE if number else ROWS)
    ]
    return [
        Cell(
            f"{recipe.name}/{at}/{label}/{request.seed + number}",
            run,
            {"recipe": recipe, "at": at, "label": label, "seed": request.seed + number},
        )
        for recipe, at, label, number in sorted(found, key=_order)
    ]


def _order(cell: tuple[Recipe, str, str, int]) -> tuple[bool, ...]:
    """The decisive rows everywhere, their other seeds at the first cut, and then the other rows there."""
    recipe, at, label, number = cell
    return label not in DECISIVE or number > 0, at != recipe.cuts[0], number == 0


def run(request: Request, recipe: Recipe, at: str, label: str, seed: int) -> Record:
    """Train to the end, from where a run that was stopped had come to."""
    settled = config(request, request.out / name, recipe, at, label, seed)
    train(settled, resume=True)
    directory = Path(settled.output.dir)
    epochs = [r for r in records.read(directory / "records.jsonl") if r["kind"] == "epoch"]
    last = epochs[-1]
    sent = {kind: sum(epoch["bytes"].get(kind, 0) for epoch in epochs) for kind in epochs[0]["bytes"]}
    raw = {kind: sum(epoch["raw_bytes"][kind] for epoch in epochs) for kind in epochs[0]["raw_bytes"]}
    return {
        "loss": last["test_loss"],
        "metrics": {metric.name: last[metric.name] for metric in records.read_metrics(directory)},
        "train_loss": last["train_loss"],
        "losses": [epoch["test_loss"] for epoch in epochs],
        "error": sum(epoch["error"] for epoch in epochs) / len(epochs),
        "bits": 32 * sent["up/smashed"] / raw["up/smashed"],
        "steps": last["global_step"],
        "bytes": sent,
        "raw_bytes": raw,
    }
