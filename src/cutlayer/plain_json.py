"""JSON: one line of anything that records and commands show, and what others wrote."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def to_json(value: Any) -> str:
    """One line of JSON that every parser accepts: NaN and infinity become null."""
    return json.dumps(_plain(value), allow_nan=False)


def from_json(text: str | bytes) -> Any:
    """What is in JSON that somebody else wrote. Raises ValueError if it is none, or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    # Numbers of NumPy and PyTorch.
    return _plain(value.item()) if hasattr(value, "item") else value
