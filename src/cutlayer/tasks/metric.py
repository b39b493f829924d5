"""A metric of a task: its name, which of two values is better, and how a value is shown."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: The metric of a task that has none but its loss.
LOSS = "test_loss"


@dataclass(frozen=True)
class Metric:
    """A metric's name, whether higher is better, and how it is shown."""

    name: str
    higher: bool = True
    percent: bool = False
    """A share from 0 to 1, which people read as per cent."""
    minor: bool = False
    """Left out where there is room for few columns."""

    def better(self, new: float, old: float) -> bool:
        """Whether a value is better than another one. NaN never is."""
        if math.isnan(new):
            return False
        return math.isnan(old) or (new > old if self.higher else new < old)

    def best(self, values: Sequence[float]) -> float:
        """The best of these values; NaN if there is none."""
        found = math.nan
        for value in values:
            found = value if self.better(value, found) else found
        return found

    def text(self, value: float) -> str:
        """A value for people."""
        return f"{value:.2%}" if self.percent else f"{value:.4g}"


def metrics_of(described: Mapping[str, Any]) -> tuple[Metric, ...]:
    """The metrics in what `Task.describe` gave. Raises KeyError, TypeError or ValueError if it is damaged."""
    found = tuple(Metric(**entry) for entry in described["metrics"])
    if not found or not all(isinstance(metric.name, str) for metric in found):
        raise ValueError("no metrics")
    return found
