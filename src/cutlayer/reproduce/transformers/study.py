"""The experiment `transformers`: one training run a cell, and its validation loss against its bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from cutlayer.files import write_atomically
from cutlayer.protocol.build import prepare_data
from cutlayer.reproduce.cell_records import Record
from cutlayer.reproduce.experiment import Cell, Request
from cutlayer.reproduce.policies import OURS, added
from cutlayer.reproduce.transformers.findings import conclude
from cutlayer.reproduce.transformers.recipes import PLANS, RECIPES, ROWS, SMOKE_TEXT, Recipe, Runs, config
from cutlayer.split.tensors import call, raw_bytes
from cutlayer.training import load_run, records
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
    """See `Experiment`: runs, rows that were asked for, and the baselines' weights under all codecs."""
    recipes = {recipe.name: recipe for recipe in RECIPES[request.scale]}
    asked = {policy.label: policy.spec for policy in added(request.codecs) if policy != OURS}
    plan = PLANS[request.scale]
    more = [Runs(name, next(r.cut for r in plan if r.recipe == name), tuple(asked)) for name in recipes]
    found, last = [], []
    for runs in (*plan, *more):
        for seed in (request.seed + number for number in runs.seeds):
            where = {"recipe": recipes[runs.recipe], "at": runs.cut, "seed": seed}
            for label in runs.rows:
                spec = ROWS.get(label) or asked[label]
                key = f"{runs.recipe}/{runs.cut}/{label}/{seed}"
                found.append(Cell(key, run, {**where, "spec": spec}))
                tested = ROWS if label == "none" and runs.tested else {}
                last += [
                    Cell(f"{key}/{other}", test, {**where, "spec": under})
                    for other, under in tested.items()
                    if other != "none"
                ]
    return found + last


def run(request: Request, recipe: Recipe, at: str, spec: str, seed: int) -> Record:
    """Train to the end, from where a run that was stopped had come to."""
    settled = config(request, request.out / name, recipe, at, spec, seed)
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


def test(request: Request, recipe: Recipe, at: str, spec: str, seed: int) -> Record:
    """The weights of the run without compression on the validation data, with a codec at the cut."""
    trained = config(request, request.out / name, recipe, at, "none", seed)
    if not Path(trained.output.dir).exists():
        train(trained)
    changed = load_run.settings(trained.output.dir, spec)
    restored = load_run.restore(
        trained.output.dir, "last", changed, prepare_data(changed), warn=lambda text: None
    )
    scored = restored.evaluate()
    opened = load_run.open_run(trained.output.dir)
    data = opened.data_spec
    with torch.no_grad():
        one = call(opened.parts[0], data.preprocess().test(data.form.zeros(1)[0]))
    raw = raw_bytes(one) * scored.samples
    return {
        "loss": scored.loss,
        "metrics": scored.metrics,
        "bits": 32 * scored.bytes["up/smashed"] / raw,
    }
