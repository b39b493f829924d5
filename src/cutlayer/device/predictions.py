"""What a model says of each sample, from its logits: label, probability, the most likely labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Prediction:
    """What the model says of one sample."""

    index: int
    label: int
    probability: float
    top: tuple[int, ...]
    """Up to five labels, the most likely first."""


def predictions(logits: Callable[[Any], Any], images: Any, batch: int = 256) -> Iterator[Prediction]:
    """What a model that works on arrays says of each sample, in order."""
    for start in range(0, len(images), batch):
        found = np.asarray(logits(images[start : start + batch]), np.float32)
        odds = np.exp(found - found.max(1, keepdims=True))
        odds /= odds.sum(1, keepdims=True)
        best = np.argsort(-odds, axis=1, kind="stable")[:, :5]
        for i, (row, labels) in enumerate(zip(odds, best.tolist(), strict=True)):
            yield Prediction(start + i, labels[0], float(row[labels[0]]), tuple(labels))
