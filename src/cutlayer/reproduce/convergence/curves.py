"""Learning curves from the records of runs: accuracy, loss and traffic at the end of each epoch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from cutlayer.config.recipes import CUTS
from cutlayer.config.schema import CodecConfig, Config
from cutlayer.errors import FileError
from cutlayer.reproduce.convergence.run_process import DIVERGED
from cutlayer.reproduce.policies import canonical, labels
from cutlayer.training import records
from cutlayer.training.load_run import settings
from cutlayer.wire.link.model import parse_links

_LABELS = labels()
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
    seconds: float
    """On the link, work included, as the virtual clock has it."""
    transfer: float
    """On the link, transfers alone: these do not depend on the machine that simulated the run."""


@dataclass(frozen=True)
class Curve:
    """A run, or the mean of several that differ in their seeds only."""

    task: str
    cut: str
    label: str
    seeds: tuple[int, ...]
    epochs: int
    """That the run was to have; the learning rate falls over all of them."""
    points: tuple[Point, ...]
    diverged: str | None = None

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
    """All runs of the experiment that have ended, in the order of tables: task, cut, policy, seed."""
    found = [read_curve(path.parent) for path in sorted((out / "convergence/runs").glob("*/config.toml"))]
    order = list(_LABELS.values())

    def place(curve: Curve) -> tuple[object, ...]:
        known = order.index(curve.label) if curve.label in order else len(order)
        return curve.task, CUTS.index(curve.cut), known, curve.label, curve.epochs, curve.seeds

    ended = _of_other_lengths(sorted((curve for curve in found if curve is not None), key=place))
    if not ended:
        raise FileError(f"{out}: no run of the convergence experiment has ended there yet")
    return ended


def _of_other_lengths(curves: list[Curve]) -> list[Curve]:
    """The same curves. Those with another number of epochs than the baseline have it in their label."""
    usual = {(c.task, c.cut): c.epochs for c in curves if c.label == BASELINE}
    return [
        c
        if usual.get((c.task, c.cut), c.epochs) == c.epochs
        else replace(c, label=f"{c.label}, {c.epochs} epochs")
        for c in curves
    ]


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
        task=f"{config.model.name}-{config.data.source}",
        cut=str(config.model.cut),
        label=_label(config.codec),
        seeds=(config.seed,),
        epochs=config.train.epochs,
        points=tuple(_points(epochs, config)),
        diverged=diverged,
    )


def _label(config: CodecConfig) -> str:
    specs = (*canonical(config.up, config.down, config.sync), config.rate)
    named = zip(("", "down=", "sync=", "rate="), specs, strict=True)
    return _LABELS.get(specs) or ", ".join(f"{n}{s}" for n, s in named if not n or s not in ("none", "fixed"))


def mean(curves: Sequence[Curve]) -> Curve:
    """The mean over seeds, epoch by epoch, as far as all of them went."""
    first = curves[0]
    points = tuple(
        Point(*(sum(getattr(p, f.name) for p in row) / len(row) for f in fields(Point)))
        for row in zip(*(curve.points for curve in curves), strict=False)
    )
    seeds = tuple(seed for curve in curves for seed in curve.seeds)
    diverged = next((curve.diverged for curve in curves if curve.diverged), None)
    return Curve(first.task, first.cut, first.label, seeds, first.epochs, points, diverged)


def grouped(curves: Iterable[Curve]) -> dict[tuple[str, str], dict[str, list[Curve]]]:
    """Task and cut to policy to its runs, one a seed."""
    groups: dict[tuple[str, str], dict[str, list[Curve]]] = {}
    for curve in curves:
        groups.setdefault((curve.task, curve.cut), {}).setdefault(curve.label, []).append(curve)
    return groups


def shared_seeds(ours: Sequence[Curve], theirs: Sequence[Curve]) -> tuple[list[Curve], list[Curve]]:
    """The runs of two policies with seeds that both have: only these can be compared."""
    common = {curve.seeds for curve in ours} & {curve.seeds for curve in theirs}
    return [c for c in ours if c.seeds in common], [c for c in theirs if c.seeds in common]


def _points(epochs: Sequence[dict[str, object]], config: Config) -> Iterable[Point]:
    link = parse_links(config.link.spec)[0]
    smashed = raw = up = down = 0.0
    for record in epochs:
        sent, plain = dict(record["bytes"]), dict(record["raw_bytes"])  # type: ignore[call-overload]
        smashed += sent.get("up/smashed", 0)
        raw += plain.get("up/smashed", 0)
        up += sent["up"]
        down += sent["down"]
        # Clients have equal parts and transfer at the same time, each on a link of its own.
        transfer = 8 * (up / link.up + down / link.down) / config.train.clients
        yield Point(
            epoch=_number(record["epoch"]),
            train_loss=_number(record["train_loss"]),
            test_loss=_number(record["test_loss"]),
            accuracy=100 * _number(record["accuracy"]),
            error=_number(record["error"]),
            smashed=smashed,
            raw=raw,
            total=up + down,
            seconds=_number(record["simulated_seconds"]),
            transfer=transfer,
        )


def _number(value: object) -> float:
    return float("nan") if value is None else float(value)  # type: ignore[arg-type]
