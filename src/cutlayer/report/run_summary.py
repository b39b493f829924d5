"""The summary of a run from its records: metrics, loss, compression error and bytes."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cutlayer.errors import RecordError
from cutlayer.tasks.metric import Metric
from cutlayer.training.load_run import settings
from cutlayer.training.records import read, read_metrics


@dataclass(frozen=True)
class Summary:
    """The summary of one run, complete or not."""

    run: str
    codec: str
    down_codec: str
    sync_codec: str
    rate: str
    mode: str
    clients: int
    epochs: int
    """Complete ones."""
    steps: int
    metrics: dict[str, float]
    """Each metric at the last evaluation; NaN before the first."""
    metric: Metric
    """The main one."""
    best: float
    """Its best value."""
    shown: tuple[Metric, ...]
    """All metrics, the main one first."""
    loss: float
    """The last epoch's mean training loss."""
    error: float
    """The mean compression error of the smashed data, ||x - y||^2 / ||x||^2; NaN if not measured."""
    bytes: dict[str, int]
    raw_bytes: dict[str, int]
    """What tensors, at the cut and shared, would have cost as plain float32, by direction and kind."""
    simulated_seconds: float | None
    """On the configured link; None without one."""

    @property
    def total(self) -> int:
        """All bytes, up and down."""
        return self.bytes.get("up", 0) + self.bytes.get("down", 0)

    @property
    def uncompressed(self) -> int:
        """All bytes, if tensors had been sent as plain float32. Everything else counts as it was sent."""
        return self.total + sum(raw - self.bytes.get(key, 0) for key, raw in self.raw_bytes.items())

    @property
    def saving(self) -> float:
        """How many times smaller than float32 the smashed data were on their way up."""
        sent = self.bytes.get("up/smashed", 0)
        return self.raw_bytes.get("up/smashed", 0) / sent if sent else math.nan

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, with the totals. Metrics stand under their names, as in records."""
        fields = asdict(self)
        for name in ("metrics", "metric", "best", "shown"):
            del fields[name]
        fields |= {**self.metrics, f"best_{self.metric.name}": self.best}
        return fields | {"total": self.total, "uncompressed": self.uncompressed, "saving": self.saving}


def summarize(directory: str | Path) -> Summary:
    """Add up the records of a run. A run that is still training is summed up to its last step."""
    config = settings(directory)
    path = Path(directory, "records.jsonl")
    sent: dict[str, int] = {}
    raw: dict[str, int] = {}
    errors: list[tuple[int, float]] = []
    epochs: list[dict[str, Any]] = []
    rest: list[dict[str, Any]] = []
    for record in read(path):
        if record.get("kind") == "epoch":
            epochs.append(record)
            rest.clear()
        elif record.get("kind") == "step":
            rest.append(record)
    # Epochs hold the sums of their steps, whose own records may have been thinned out.
    counted = [*epochs, *rest]
    if not counted:
        raise RecordError(f"{path}: the run has not made a step yet")
    before = 0
    for record in counted:
        for sums, found in ((sent, record["bytes"]), (raw, record.get("raw_bytes", {}))):
            for key, value in found.items():
                sums[key] = sums.get(key, 0) + value
        if record.get("error") is not None:
            errors.append((record["global_step"] - before, record["error"]))
        before = record["global_step"]
    weight = sum(steps for steps, _ in errors)
    metrics = read_metrics(directory)
    scores = {m.name: [e[m.name] for e in epochs if e.get(m.name) is not None] for m in metrics}
    return Summary(
        run=Path(directory).name,
        codec=config.codec.up,
        down_codec=config.codec.down,
        sync_codec=config.codec.sync,
        rate=config.codec.rate,
        mode=config.train.mode,
        clients=config.train.clients,
        epochs=len(epochs),
        steps=counted[-1]["global_step"],
        metrics={name: values[-1] if values else math.nan for name, values in scores.items()},
        metric=metrics[0],
        best=metrics[0].best(scores[metrics[0].name]),
        shown=metrics,
        loss=epochs[-1]["train_loss"] if epochs else math.nan,
        error=sum(steps * error for steps, error in errors) / weight if weight else math.nan,
        bytes=sent,
        raw_bytes=raw,
        simulated_seconds=None if config.link.spec == "none" else counted[-1].get("simulated_seconds"),
    )
