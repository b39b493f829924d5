"""A rate that adapts to the link: each client sends as many bits an element as its uplink carries in time.

The time budget for sending the smashed data is `share` times the client's own work of a step (data, forward,
encode, decode, backward). The rate is the highest step of a ladder within that budget, or the lowest step.
Frames are self-describing: the server decodes them whatever their rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from cutlayer.codecs import Codec
from cutlayer.errors import CheckpointError, ConfigError
from cutlayer.rates.base import Rate
from cutlayer.rates.ladder import LadderStep, ladder
from cutlayer.seeding import undisturbed
from cutlayer.wire.link.model import Link

# The weight of the newest measurement in a running mean, which spans about four steps.
_NEWEST = 0.25
# A backward pass computes gradients of weights and of inputs: twice the products of a forward pass.
PASSES = 3


@dataclass(frozen=True)
class RateBounds:
    """The bounds of an adaptive rate: `auto:min=1,max=8,share=1`, or `auto` alone."""

    min: float = 1.0
    max: float = 8.0
    share: float = 1.0
    """The time for sending, in multiples of the client's own work."""

    @classmethod
    def parse(cls, spec: str) -> RateBounds:
        """Parse the bounds."""
        word, _, rest = spec.partition(":")
        help_ = "write it as auto or auto:min=1,max=8,share=1"
        if word.strip() != "auto":
            raise ConfigError(f"the rate {spec!r} is not understood; {help_}")
        found: dict[str, float] = {}
        for piece in filter(None, rest.split(",")):
            name, _, value = (part.strip() for part in piece.partition("="))
            try:
                number = float(value)
            except ValueError:
                number = math.nan
            if name not in ("min", "max", "share") or name in found or not 0 < number < math.inf:
                raise ConfigError(f"{piece.strip()!r} in the rate {spec!r} is not understood; {help_}")
            found[name] = number
        bounds = cls(**found)
        if not bounds.min <= bounds.max <= 32:
            raise ConfigError(
                f"the rate {spec!r}: min must not be above max, and max at most 32 bits an element"
            )
        return bounds

    def __str__(self) -> str:
        return f"auto:min={self.min:g},max={self.max:g},share={self.share:g}"


class AdaptiveRate(Rate):
    """A client's rate by its bandwidth and speed, as running means of what it measured."""

    def __init__(
        self,
        steps: Sequence[LadderStep],
        share: float,
        uplink: Callable[[], float | None],
        compute: Callable[[int], float] | None = None,
    ) -> None:
        """`uplink` gives a new measurement in bits a second, or None if there is none.

        `compute` gives the seconds that the work on so many samples takes; without it, measured times count.
        """
        self.steps = tuple(steps)
        super().__init__(self.steps[0].codec)
        self.share = share
        self._uplink = uplink
        self._modelled = compute
        self.chosen = self.steps[0]
        # Running means; 0 before the first measurement.
        self._seconds_per_bit = 0.0
        self._work = 0.0
        self._beyond = 0.0

    @classmethod
    def measured(cls, bounds: RateBounds, up: Codec, uplink: Callable[[], float | None]) -> AdaptiveRate:
        """For a client that measures its own bandwidth and work."""
        return cls(ladder(up, bounds.min, bounds.max), bounds.share, uplink)

    @classmethod
    def simulated(cls, bounds: RateBounds, up: Codec, link: Link, madds: int, speed: float) -> AdaptiveRate:
        """For a client in this process: bandwidth and work are computed, so that runs are reproducible.

        `madds` are the multiply-adds of its half for one sample, `speed` its multiply-adds a second.
        """
        steps = ladder(up, bounds.min, bounds.max)
        return cls(steps, bounds.share, lambda: link.up, lambda n: PASSES * madds * n / speed)

    def choose(self, elements: int, epochs: float = 0.0) -> Codec:
        """The codec for a tensor of so many elements. The lowest rate until both times are known."""
        bandwidth = self._uplink()
        if bandwidth is not None:
            self._seconds_per_bit = _blend(self._seconds_per_bit, 1 / bandwidth)
        allowed = 0.0
        if self._seconds_per_bit and self._work:
            bits = self.share * self._work / self._seconds_per_bit
            allowed = bits / elements - self._beyond
        fits = [step for step in self.steps if step.bits <= allowed]
        self.chosen = fits[-1] if fits else self.steps[0]
        self.codec = self.chosen.codec
        return self.codec

    def sent(self, nbytes: int, elements: int) -> None:
        """Headers and sign bits come on top of the rate: the next choice takes them into account."""
        self._beyond = 8 * nbytes / elements - self.chosen.bits

    def worked(self, samples: int, seconds: float) -> None:
        """Take in how long the client's own work of a step took."""
        self._work = _blend(self._work, seconds if self._modelled is None else self._modelled(samples))

    def state(self) -> dict[str, Tensor]:
        """The running means."""
        means = [self._seconds_per_bit, self._work, self._beyond]
        return {"rate": torch.tensor(means, dtype=torch.float64)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint's state, or from the beginning if that is empty."""
        values = state["rate"].tolist() if "rate" in state else [0.0, 0.0, 0.0]
        if len(values) != 3:
            raise CheckpointError(f"a client's rate has {len(values)} values in the checkpoint, not 3")
        self._seconds_per_bit, self._work, self._beyond = values


@torch.no_grad()
def client_madds(
    parts: Sequence[nn.Module], example: Tensor | tuple[Tensor, ...] | Mapping[str, Tensor]
) -> int:
    """Multiply-adds of a client's parts for one sample: of all but the second, which is the server's."""
    total, x = 0, example
    for place, part in enumerate(parts):
        was = part.training
        with undisturbed(), FlopCounterMode(display=False) as counter:
            part.eval()
            x = part(x) if isinstance(x, Tensor) else part(**x) if isinstance(x, Mapping) else part(*x)
        part.train(was)
        total += counter.get_total_flops() // 2 if place != 1 else 0
    return total


def _blend(old: float, new: float) -> float:
    return new if not old else old + _NEWEST * (new - old)
