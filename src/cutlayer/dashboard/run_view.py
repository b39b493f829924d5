"""What the records of a run add up to: curves, bytes against float32, seconds by stage."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cutlayer.dashboard.curve import Curve
from cutlayer.wire.meter import Kind

Record = Mapping[str, Any]
_KINDS = [str(kind) for kind in Kind]


@dataclass(frozen=True)
class Metric:
    """A metric of evaluations: the key of its values in records, and whether it is a share of 1."""

    name: str
    percent: bool = False


#: Of runs that do not say what theirs are: those of classification.
ACCURACY = (Metric("accuracy", percent=True), Metric("accuracy_top5", percent=True))


class RunView:
    """Takes in records in their order. `metrics` are those of the run's task, the main one first."""

    def __init__(self, metrics: Sequence[Metric] = ACCURACY) -> None:
        self.step = self.epoch = 0
        self.loss = Curve()
        self.test_loss = Curve()
        self.metrics = {metric.name: Curve() for metric in metrics}
        self.percent = [metric.name for metric in metrics if metric.percent]
        self.main = metrics[0].name
        self.latest: dict[str, float] = {}
        """The last loss, test loss and value of each metric, by name."""
        self.bits: dict[str, float] = {}
        """The last bits an element of each client, where clients choose them."""
        self.client_bytes: dict[str, dict[str, int]] = {}
        # An epoch's record holds the sums of its steps, whose own records may have been thinned out.
        self._epochs = _Sums()
        self._steps = _Sums()

    def add(self, record: Record) -> None:
        """One record. What is not understood is left out: the file may be of another version."""
        kind, step = record.get("kind"), record.get("global_step")
        if not isinstance(step, int):
            return
        self.step = step
        if isinstance(record.get("epoch"), int):
            self.epoch = record["epoch"]
        if kind in ("step", "curve"):
            self._add(self.loss, "loss", record.get("loss"), step)
            self._steps.add(record)
            self.bits |= {str(k): float(v) for k, v in _mapping(record, "bits").items() if _finite(v)}
        elif kind == "epoch":
            self._evaluated(record, step)
            self._epochs.add(record)
            self._steps = _Sums()
            self.client_bytes = dict(_mapping(record, "client_bytes")) or self.client_bytes

    def _evaluated(self, record: Record, step: int) -> None:
        self._add(self.test_loss, "test_loss", record.get("test_loss"), step)
        for name, curve in self.metrics.items():
            self._add(curve, name, record.get(name), step)

    def _add(self, curve: Curve, name: str, value: Any, step: int) -> None:
        if _finite(value):
            curve.add(step, float(value))
            self.latest[name] = float(value)

    @property
    def traffic(self) -> list[dict[str, Any]]:
        """Bytes by direction and kind, beside what float32 would have cost."""
        sent, raw = self._epochs.bytes + self._steps.bytes, self._epochs.raw + self._steps.raw
        rows = []
        for key in sorted(sent, key=_order):
            direction, slash, kind = key.partition("/")
            if slash and sent[key]:
                # Labels and control messages are sent as they are.
                rows.append(
                    {"direction": direction, "kind": kind, "sent": sent[key], "raw": raw.get(key, sent[key])}
                )
        return rows

    @property
    def evaluation_bytes(self) -> int:
        """What evaluations sent, which no other sum contains."""
        found = self._epochs.evaluation
        return int(found.get("up", 0) + found.get("down", 0))

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by stage."""
        return dict(self._epochs.seconds + self._steps.seconds)

    @property
    def mean_bits(self) -> float | None:
        """Bits an element of all smashed data so far."""
        row = next((r for r in self.traffic if (r["direction"], r["kind"]) == ("up", "smashed")), None)
        return None if row is None or not row["raw"] else 32 * row["sent"] / row["raw"]

    def curves(self) -> dict[str, Any]:
        """Everything that is drawn."""
        return {
            "main": self.main,
            "percent": self.percent,
            "loss": self.loss.points(),
            "test_loss": self.test_loss.points(),
            "metrics": {name: curve.points() for name, curve in self.metrics.items() if curve.points()},
        }


class _Sum(dict[str, float]):
    """Numbers by name that can be added."""

    def __add__(self, other: Mapping[str, float]) -> _Sum:
        return _Sum({key: self.get(key, 0) + other.get(key, 0) for key in {**self, **other}})


class _Sums:
    """Sums over records."""

    def __init__(self) -> None:
        self.bytes, self.raw, self.seconds, self.evaluation = _Sum(), _Sum(), _Sum(), _Sum()

    def add(self, record: Record) -> None:
        self.bytes += _numbers(record, "bytes")
        self.raw += _numbers(record, "raw_bytes")
        self.seconds += _numbers(record, "seconds")
        self.evaluation += _numbers(record, "evaluation_bytes")


def _order(key: str) -> tuple[bool, int]:
    """Up before down, tensors before the rest."""
    direction, _, kind = key.partition("/")
    return direction != "up", _KINDS.index(kind) if kind in _KINDS else len(_KINDS)


def _mapping(record: Record, key: str) -> Mapping[str, Any]:
    found = record.get(key)
    return found if isinstance(found, Mapping) else {}


def _numbers(record: Record, key: str) -> dict[str, float]:
    return {name: value for name, value in _mapping(record, key).items() if _finite(value)}


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
