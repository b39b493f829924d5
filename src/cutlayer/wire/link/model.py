"""The network as a formula: what sending so many bytes over a given link takes.

`--link 100mbit,10ms` is the link between each client and the server. On a network transport the
sender really waits; on the loopback transport nobody does, and a virtual clock adds up the time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from cutlayer.errors import LinkError
from cutlayer.wire.meter import Direction

_RATES = {"gbit": 10**9, "mbit": 10**6, "kbit": 10**3, "bit": 1}
_TIMES = {"s": Decimal(1), "ms": Decimal("0.001")}
_PIECE = re.compile(r"(?:(up|down|latency)=)?(\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?)\s*([a-z/]+)")
#: Beyond these the arithmetic of links, with its sums and timers, would overflow or never end.
SLOWEST, FASTEST, LONGEST_LATENCY = 1e-3, 1e15, 1e4
_LONGEST_SPEC = 200
_HELP = (
    "a link is written as '100mbit,10ms' or 'up=10mbit,down=100mbit,latency=10ms', "
    "with rates in bit, kbit, mbit or gbit (per second) and latency in ms or s"
)


@dataclass(frozen=True)
class Link:
    """A client's link: bits per second up and down, and the latency of each message in seconds.

    >>> Link.parse("100mbit,10ms").seconds(Direction.UP, 1_250_000)
    0.11
    """

    up: float
    down: float
    latency: float = 0.0

    def __post_init__(self) -> None:
        for name, rate in (("up", self.up), ("down", self.down)):
            if not SLOWEST <= rate <= FASTEST:
                raise LinkError(
                    f"the link's {name} rate must be more than 0, {SLOWEST:g} to {FASTEST:g} bit/s, "
                    f"not {rate}; {_HELP}"
                )
        if not 0 <= self.latency <= LONGEST_LATENCY:
            raise LinkError(
                f"the link's latency must be 0 to {LONGEST_LATENCY:g} s, not {self.latency}; {_HELP}"
            )

    @classmethod
    def parse(cls, spec: str) -> Link:
        """The link that a string describes. `str(link)` gives the string back."""
        if len(spec) > _LONGEST_SPEC:
            raise LinkError(f"a link of {len(spec)} characters is not understood; {_HELP}")
        found: dict[str, float] = {}
        for piece in spec.lower().split(","):
            match = _PIECE.fullmatch(piece.strip())
            if match is None:
                raise LinkError(f"{piece.strip()!r} in the link {spec!r} is not understood; {_HELP}")
            name, number, unit = match.groups()
            for key, value in _read(spec, name, number, unit).items():
                if key in found:
                    raise LinkError(f"the link {spec!r} gives {key} twice; {_HELP}")
                found[key] = value
        missing = [name for name in ("up", "down") if name not in found]
        if missing:
            raise LinkError(f"the link {spec!r} has no rate {' and '.join(missing)}; {_HELP}")
        return cls(**found)

    def __str__(self) -> str:
        up, down = _write(self.up, _RATES, "bit"), _write(self.down, _RATES, "bit")
        latency = _write(self.latency, _TIMES, "s")
        if self.up == self.down:
            return f"{up},{latency}" if self.latency else up
        return f"up={up},down={down}" + (f",latency={latency}" if self.latency else "")

    def seconds(self, direction: Direction, nbytes: int) -> float:
        """How long one message of so many bytes takes: latency and transfer."""
        rate = self.up if direction == Direction.UP else self.down
        return self.latency + nbytes * 8 / rate


def parse_links(spec: str) -> tuple[Link, ...]:
    """Links between semicolons, which clients get in turn: `20mbit,10ms; 2mbit,30ms`. None for `none`."""
    return () if spec in ("none", "") else tuple(Link.parse(piece.strip()) for piece in spec.split(";"))


def _read(spec: str, name: str | None, number: str, unit: str) -> dict[str, float]:
    if unit in _RATES and name != "latency":
        rate = _product(number, _RATES[unit])
        return {name: rate} if name else {"up": rate, "down": rate}
    if unit in _TIMES and name in (None, "latency"):
        return {"latency": _product(number, _TIMES[unit])}
    if unit in _RATES or unit in _TIMES:
        raise LinkError(f"{name}={number}{unit} in the link {spec!r} has the wrong kind of unit; {_HELP}")
    raise LinkError(f"the link {spec!r} has the unknown unit {unit!r}; {_HELP}")


def _product(number: str, unit: int | Decimal) -> float:
    """In decimals, so that 10ms is 0.01; infinite or 0 where the exponent is beyond all numbers."""
    try:
        return float(Decimal(number) * unit)
    except ArithmeticError:  # decimal's own overflow
        return math.inf


def _write(value: float, units: Mapping[str, int | Decimal], exact: str) -> str:
    """The value in the largest unit of which it has one, if it is read back as the same number."""
    for unit, size in units.items():
        number = f"{float(Decimal(repr(value)) / size):.15g}"
        if Decimal(number) >= 1 and float(Decimal(number) * size) == value:
            return number + unit
    return f"{value!r}{exact}"
