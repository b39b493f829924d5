"""Learning curves from the records of runs: accuracy, loss and traffic at the end of each epoch.

Runs are told apart by their settings, whatever their directories are called.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from cutlayer.config.recipes import CUTS
from cutlayer.config.schema import Config
from cutlayer.config.sections import TrainConfig
from cutlayer.errors import FileError, RecordError
from cutlayer.reproduce.convergence.cross_evaluation import read_scores
from cutlayer.reproduce.convergence.run_process import DIVERGED
from cutlayer.reproduce.further_policies import CONSTANT_PULL, FURTHER
from cutlayer.reproduce.policies import Policy, labels, sent
from cutlayer.training import records
from cutlayer.training.load_run import settings
from cutlayer.wire.link.model import Link, parse_links

_LABELS = labels((*FURTHER, *CONSTANT_PULL))
BASELINE = "none"


@dataclass(frozen=True)
class Point:
    """The end of an epoch. Costs are cumulative, without those of evaluation."""

    epoch: float
    train_loss: float
    test_loss: float
    accuracy: float
    """In per cent."""
    error: float
    """Of the smashed data in this epoch, ||x - y||^2 / ||x||^2."""
    smashed: float
    """Bytes of smashed data up: what the paper counts."""
    raw: float
    """What the smashed data would have cost as float32."""
    total: float
    """All bytes, up and down: smashed data, labels, gradients, what clients average, control."""
    raw_total: float
    """What all of it would have cost with float32 instead of codecs."""
    steps: float
    """Of the whole run so far."""
    transfer: float
    """Seconds of transfer on the link. Work is not in it: that depends on the machine and its load."""


@dataclass(frozen=True)
class Curve:
    """A run, or the mean of several that differ in their seeds only."""

    task: str
    cut: str
    policy: str
    """The codecs and rates, as the paper labels them."""
    seeds: tuple[int, ...]
    epochs: int
    """That the run was to have; the learning rate falls over all of them."""
    schedule: str
    """Of the learning rate."""
    recipe: str
    """All settings that shape the result, as JSON, but for seed, cut and what is sent when. Only runs with
    the same recipe can be compared: they have the same data, epochs and schedule."""
    points: tuple[Point, ...]
    clients: int = 1
    equal_parts: bool = True
    """Whether clients have as many samples each, so that they send as many bytes."""
    diverged: str | None = None
    label: str = ""
    """The policy, and what distinguishes the recipe from the usual one."""
    evaluations: Mapping[str, float] = field(default_factory=dict)
    """Test accuracy of the final weights by codec, in per cent; empty if weights were not kept."""

    @property
    def last(self) -> Point:
        """The end of the run."""
        return self.points[-1]

    @property
    def best(self) -> float:
        """The best accuracy of any epoch, in per cent."""
        return max(point.accuracy for point in self.points)

    def reach(self, accuracy: float) -> Point | None:
        """The end of the first epoch with at least this accuracy; None if there is none."""
        # Means of the same accuracies may differ in their last bits.
        return next((point for point in self.points if point.accuracy >= accuracy - 1e-9), None)


def read_curves(out: Path) -> list[Curve]:
    """All runs of the experiment that have ended, in the order of tables: task, cut, recipe, policy, seed."""
    found: dict[tuple[object, ...], tuple[Curve, Path]] = {}
    for path in sorted((out / "convergence/runs").glob("*/config.toml")):
        curve = read_curve(path.parent)
        if curve is None:
            continue
        key = (curve.task, curve.cut, curve.policy, curve.recipe, curve.seeds)
        if key in found:
            raise RecordError(
                f"{path.parent} and {found[key][1]}: two runs with the same settings and seed would count "
                "as two pairs; remove one of them"
            )
        found[key] = curve, path.parent
    order = list(_LABELS.values())

    def place(curve: Curve) -> tuple[object, ...]:
        known = order.index(curve.policy) if curve.policy in order else len(order)
        recipe = curve.epochs, curve.recipe
        return curve.task, CUTS.index(curve.cut), known, curve.policy, *recipe, curve.seeds

    ended = _labelled(sorted((curve for curve, _ in found.values()), key=place))
    if not ended:
        raise FileError(f"{out}: no run of the convergence experiment has ended there yet")
    return ended


def _labelled(curves: list[Curve]) -> list[Curve]:
    """The same curves with labels. The usual recipe of a task is the baseline's with the fewest epochs."""
    usual: dict[str, dict[str, Any]] = {}
    for curve in sorted(curves, key=lambda c: (c.policy != BASELINE, c.epochs, c.recipe)):
        usual.setdefault(curve.task, json.loads(curve.recipe))
    return [replace(c, label=", ".join([c.policy, *_unusual(c.recipe, usual[c.task])])) for c in curves]


def _unusual(recipe: str, usual: dict[str, Any]) -> list[str]:
    found = []
    for name, value in json.loads(recipe).items():
        if value != usual.get(name):
            short = name.partition(".")[2] or name
            found.append(f"{value} epochs" if short == "epochs" else f"{short}={value}")
    return found


def read_curve(directory: Path) -> Curve | None:
    """One run; None if it has not ended."""
    config = settings(directory)
    path = directory / "records.jsonl"
    epochs = [r for r in records.read(path) if r["kind"] == "epoch"] if path.exists() else []
    diverged = None
    if (directory / DIVERGED).exists():
        diverged = str(json.loads((directory / DIVERGED).read_text(encoding="utf-8"))["why"])
    elif not epochs or epochs[-1]["epoch"] != config.train.epochs:
        return None
    return Curve(
        task=_task(config),
        cut=str(config.model.cut),
        policy=policy_of(config),
        seeds=(config.seed,),
        epochs=config.train.epochs,
        schedule=_schedule(config.train),
        recipe=_recipe(config),
        points=tuple(_points(epochs, _link(directory, config), config.train.clients)),
        clients=config.train.clients,
        equal_parts=config.data.partition == "even",
        diverged=diverged,
        evaluations={spec: 100 * score["accuracy"] for spec, score in read_scores(directory).items()},
    )


def _recipe(config: Config) -> str:
    identity = config.identity()
    sections = {name: value for name, value in identity.items() if isinstance(value, dict)}
    flat = {
        f"{section}.{name}": value
        for section, values in sections.items()
        if section not in ("codec", "link")
        for name, value in values.items()
        if (section, name) not in (("model", "cut"), ("train", "sync"), ("train", "share_differences"))
    }
    return json.dumps(flat, sort_keys=True)


def _task(config: Config) -> str:
    """Model and data; the partition, too, unless clients have equal parts."""
    parts = [config.model.name, config.data.source.removeprefix("parquet:")]
    even = config.data.partition == "even"
    return "-".join(parts if even else [*parts, re.sub("[:=]", "-", config.data.partition)])


def _schedule(train: TrainConfig) -> str:
    parts = [f"lr {train.lr:g}", train.schedule]
    if train.schedule == "steps":
        parts[-1] += f" {list(train.milestones)} by {train.gamma:g}"
    elif train.schedule == "every":
        parts[-1] += f" {train.period} by {train.gamma:g}"
    return ", ".join([*parts, f"warm-up {train.warmup_epochs}"] if train.warmup_epochs else parts)


def policy_of(config: Config) -> str:
    """The label of what a run sends how, and how often clients average."""
    codec, train = config.codec, config.train
    key = sent(
        Policy(
            "",
            codec.up,
            codec.down,
            codec.sync,
            rate=codec.rate,
            memory=codec.memory,
            commitment=codec.commitment,
        )
    )
    named = zip(("", "down=", "sync=", "rate=", "memory=", "commitment="), key, strict=True)
    usual = ("none", "fixed", "0")
    label = _LABELS.get(key) or ", ".join(f"{n}{s}" for n, s in named if not n or s not in usual)
    if train.sync != "step":
        label += f", averaged each {train.sync if train.sync == 'epoch' else f'{train.sync} steps'}"
    return f"{label}, as differences" if train.share_differences else label


def mean(curves: Sequence[Curve]) -> Curve:
    """The mean over seeds, epoch by epoch, as far as all of them went."""
    if len({curve.recipe for curve in curves}) != 1:
        raise RecordError("runs of different recipes have no common mean: they differ in more than the seed")
    points = tuple(
        Point(*(sum(getattr(p, f.name) for p in row) / len(row) for f in fields(Point)))
        for row in zip(*(curve.points for curve in curves), strict=False)
    )
    seeds = tuple(seed for curve in curves for seed in curve.seeds)
    diverged = next((curve.diverged for curve in curves if curve.diverged), None)
    return replace(curves[0], seeds=seeds, points=points, diverged=diverged)


def _link(directory: Path, config: Config) -> Link:
    links = parse_links(config.link.spec)
    if not links:
        raise RecordError(
            f"{directory}: has no link.spec, so it is no run of this experiment, which counts seconds of "
            "transfer; move it elsewhere"
        )
    return links[0]


def _points(epochs: Sequence[dict[str, object]], link: Link, clients: int) -> Iterable[Point]:
    smashed = raw = up = down = saved = 0.0
    for record in epochs:
        sent, plain = dict(record["bytes"]), dict(record["raw_bytes"])  # type: ignore[call-overload]
        smashed += sent.get("up/smashed", 0)
        raw += plain.get("up/smashed", 0)
        up += sent["up"]
        down += sent["down"]
        saved += sum(plain[kind] - sent.get(kind, 0) for kind in plain)
        # Clients have equal parts and transfer at the same time, each on a link of its own.
        transfer = 8 * (up / link.up + down / link.down) / clients
        yield Point(
            epoch=_number(record["epoch"]),
            train_loss=_number(record["train_loss"]),
            test_loss=_number(record["test_loss"]),
            accuracy=100 * _number(record["accuracy"]),
            error=_number(record["error"]),
            smashed=smashed,
            raw=raw,
            total=up + down,
            raw_total=up + down + saved,
            steps=_number(record["global_step"]),
            transfer=transfer,
        )


def _number(value: object) -> float:
    return float("nan") if value is None else float(value)  # type: ignore[arg-type]
