"""A rate that follows the link: each client sends as many bits an element as its uplink carries in time.

Sending the smashed data may take `share` times as long as the client's own work of a step (data, forward,
encode, decode, backward), so that a slow uplink makes no step much longer than a slow processor would. The
rate is the highest of a ladder that keeps to this, or the lowest there is. Frames describe themselves: the
server decodes whatever comes.
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
from cutlayer.rates.ladder import Rung, ladder
from cutlayer.wire.link.model import Link

# What the newest measurement counts: about the last four steps decide.
_NEWEST = 0.25
# A backward pass computes gradients of weights and of inputs: twice the products of a forward pass.
PASSES = 3


@dataclass(frozen=True)
class AutoRate:
    """The bounds of an automatic rate: `auto:min=1,max=8,share=1`, or `auto` alone."""

    min: float = 1.0
    max: float = 8.0
    share: float = 1.0
    """How long sending may take, in times of the client's own work."""

    @classmethod
    def parse(cls, spec: str) -> AutoRate:
        """The bounds in a string."""
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


class Pace(Rate):
    """One client's choice of rate, from step to step."""

    def __init__(
        self,
        rungs: Sequence[Rung],
        share: float,
        uplink: Callable[[], float | None],
        compute: Callable[[int], float] | None = None,
    ) -> None:
        """`uplink` gives a new measurement in bits a second, or None; `compute` the seconds of a batch.

        Without `compute`, what the client measures counts.
        """
        self.rungs = tuple(rungs)
        super().__init__(self.rungs[0].codec)
        self.share = share
        self._uplink = uplink
        self._modelled = compute
        self.chosen = self.rungs[0]
        # Running means; 0 before the first measurement.
        self._seconds_per_bit = 0.0
        self._work = 0.0
        self._beyond = 0.0

    def choose(self, elements: int, epochs: float = 0.0) -> Codec:
        """The codec for a tensor that is about to leave. The lowest rate until both times are known."""
        bandwidth = self._uplink()
        if bandwidth is not None:
            self._seconds_per_bit = _blend(self._seconds_per_bit, 1 / bandwidth)
        allowed = 0.0
        if self._seconds_per_bit and self._work:
            bits = self.share * self._work / self._seconds_per_bit
            allowed = bits / elements - self._beyond
        fits = [rung for rung in self.rungs if rung.bits <= allowed]
        self.chosen = fits[-1] if fits else self.rungs[0]
        self.codec = self.chosen.codec
        return self.codec

    def sent(self, nbytes: int, elements: int) -> None:
        """What the frame really took: headers and sign bits come on top of the rate."""
        self._beyond = 8 * nbytes / elements - self.chosen.bits

    def worked(self, samples: int, seconds: float) -> None:
        """What the client's own work of a step took."""
        self._work = _blend(self._work, seconds if self._modelled is None else self._modelled(samples))

    def state(self) -> dict[str, Tensor]:
        """The means that the next choice depends on."""
        means = [self._seconds_per_bit, self._work, self._beyond]
        return {"rate": torch.tensor(means, dtype=torch.float64)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Choose on from what `state` gave; from nothing if there is nothing."""
        values = state["rate"].tolist() if "rate" in state else [0.0, 0.0, 0.0]
        if len(values) != 3:
            raise CheckpointError(f"a client's rate has {len(values)} values in the checkpoint, not 3")
        self._seconds_per_bit, self._work, self._beyond = values


def measured(bounds: AutoRate, up: Codec, uplink: Callable[[], float | None]) -> Pace:
    """The pace of a client that measures its own link and work."""
    return Pace(ladder(up, bounds.min, bounds.max), bounds.share, uplink)


def simulated(bounds: AutoRate, up: Codec, link: Link, madds: int, speed: float) -> Pace:
    """The pace of a client in this process: its link is given and its work reckoned, so that runs repeat.

    `madds` are the multiply-adds of its half for one sample, `speed` how many it does in a second.
    """
    rungs = ladder(up, bounds.min, bounds.max)
    return Pace(rungs, bounds.share, lambda: link.up, lambda samples: PASSES * madds * samples / speed)


@torch.no_grad()
def client_madds(parts: Sequence[nn.Module], example: Tensor) -> int:
    """Multiply-adds of a client's parts for one sample: of all but the second, which is the server's."""
    total, x = 0, example[:1]
    for place, part in enumerate(parts):
        was = part.training
        with FlopCounterMode(display=False) as counter:
            x = part.eval()(x)
        part.train(was)
        total += counter.get_total_flops() // 2 if place != 1 else 0
    return total


def _blend(old: float, new: float) -> float:
    return new if not old else old + _NEWEST * (new - old)
