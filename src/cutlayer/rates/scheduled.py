"""A rate that follows a schedule: fewer bits early in the run, and the codec as configured at its end.

Later steps, with less compression error, can repair what earlier ones disturbed. docs/how-to/traffic.md has
the results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from cutlayer.codecs import Codec
from cutlayer.errors import ConfigError
from cutlayer.rates.base import Rate
from cutlayer.rates.ladder import at_bits

#: Shares of a run are written in percent and computed in doubles.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Stage:
    """Until this share of the run (1 is all of it), so many bits an element."""

    until: float
    bits: float


@dataclass(frozen=True)
class RateSchedule:
    """Rates before that of `codec.up`: `until:80%=0.5`, or several, as `until:40%=0.5,80%=1`."""

    stages: tuple[Stage, ...]

    @classmethod
    def parse(cls, spec: str) -> RateSchedule:
        """Parse a schedule."""
        word, _, rest = spec.partition(":")
        help_ = "write shares of the run and bits an element, as until:80%=0.5 or until:40%=0.5,80%=1"
        if word.strip() != "until" or not rest.strip():
            raise ConfigError(f"the rate {spec!r} is not understood; {help_}")
        found = []
        for piece in rest.split(","):
            share, _, bits = (part.strip() for part in piece.partition("="))
            stage = Stage(_number(share.removesuffix("%")) / 100, _number(bits))
            if not (share.endswith("%") and 0 < stage.until < 1 and 0 < stage.bits <= 32):
                raise ConfigError(f"{piece.strip()!r} in the rate {spec!r} is not understood; {help_}")
            found.append(stage)
        if any(b.until <= a.until for a, b in pairwise(found)):
            raise ConfigError(f"the rate {spec!r}: shares of the run must increase")
        return cls(tuple(found))

    def __str__(self) -> str:
        return "until:" + ",".join(f"{100 * stage.until:g}%={stage.bits:g}" for stage in self.stages)


class ScheduledRate(Rate):
    """A client's rate by the place in the run alone, so that a checkpoint needs no state of it."""

    def __init__(self, up: Codec, stages: Sequence[Stage], epochs: int) -> None:
        super().__init__(up)
        self._epochs = epochs
        self._plan = [(stage.until, at_bits(up, stage.bits)) for stage in stages] + [(math.inf, up)]

    def choose(self, elements: int, epochs: float) -> Codec:
        """The codec of the current stage."""
        done = epochs / self._epochs + _ROUNDING
        self.codec = next(codec for until, codec in self._plan if done < until)
        return self.codec


def fixed_or_scheduled(spec: str, up: Codec, epochs: int) -> Rate:
    """The rate for `codec.rate = fixed` or `until:...`, which do not depend on measurements."""
    return Rate(up) if spec == "fixed" else ScheduledRate(up, RateSchedule.parse(spec).stages, epochs)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
