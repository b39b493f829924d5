"""The rate ladder of a codec: the same codec at increasing bits an element, all else unchanged."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

from cutlayer.analysis.rates import at_rate
from cutlayer.codecs import Codec
from cutlayer.errors import ConfigError

#: The ratio of neighbouring rates: four steps double the rate.
_STEP = 2**0.25


@dataclass(frozen=True)
class LadderStep:
    """A rate in bits an element, and the codec at that rate."""

    bits: float
    codec: Codec


def _like(given: Codec, found: Codec, *names: str) -> Codec:
    return dataclasses.replace(given, **{name: getattr(found, name) for name in names})


def _ms(given: Codec, bits: float) -> Codec:
    return _like(given, at_rate("ms", bits), "ratio", "bits")


def _sparse(given: Codec, bits: float) -> Codec:
    return _like(given, at_rate(given.name, bits), "ratio")


def _qu(given: Codec, bits: float) -> Codec:
    return dataclasses.replace(given, **{"bits": int(bits)})


def _ems(given: Codec, bits: float) -> Codec:
    return dataclasses.replace(given, **{"bpe": bits, "error": 0.0, "levels": 0})


#: For each codec: how to set its rate, and its lowest rate.
FAMILIES: dict[str, tuple[Callable[[Codec, float], Codec], float]] = {
    "ems": (_ems, 0.1),
    "ms": (_ms, 1.1),
    "qu": (_qu, 1.0),
    "sp": (_sparse, 1.1),
    "rt": (_sparse, 1.1),
}


def at_bits(up: Codec, bits: float) -> Codec:
    """`up` at so many bits an element."""
    return ladder(up, bits, bits)[0].codec


def ladder(up: Codec, low: float, high: float) -> tuple[LadderStep, ...]:
    """All steps from `low` to `high` bits an element, with the codec `up`.

    >>> [str(step.codec) for step in ladder(codec("qu:bits=3"), 2, 4)]
    ['qu:bits=2', 'qu', 'qu:bits=4']
    """
    if up.name not in FAMILIES:
        raise ConfigError(
            f"the rate of {up} cannot be chosen; a rate that changes needs a codec.up of the family "
            f"{', '.join(FAMILIES)}"
        )
    make, least = FAMILIES[up.name]
    if up.name == "qu":
        rates = [float(bits) for bits in range(math.ceil(max(low, least)), math.floor(high) + 1)]
    else:
        start = max(low, least)
        count = math.floor(math.log(high / start, _STEP) + 1e-9) + 1 if high >= start else 0
        rates = [round(start * _STEP**i, 4) for i in range(count)]
        if rates and high > rates[-1] * 1.01:
            rates.append(high)
    if not rates:
        raise ConfigError(
            f"{up.name} has no rate {_span(low, high)} bits an element; its lowest is {least:g}"
            + (", and it has whole bits only" if up.name == "qu" else "")
        )
    return tuple(LadderStep(bits, make(up, bits)) for bits in rates)


def _span(low: float, high: float) -> str:
    return f"of {low:g}" if low == high else f"between {low:g} and {high:g}"
