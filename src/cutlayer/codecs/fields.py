"""Parameters of codecs: `real`, `integer`, `choice` and `seed` declare the fields of a codec's dataclass.

A declaration says which values are allowed and how the field is stored in a frame. Spec strings, validation,
the command `cutlayer codecs` and the header's parameter block all derive from it.
"""

import difflib
import math
import struct
from collections.abc import Iterable
from dataclasses import MISSING, Field, field, fields
from dataclasses import dataclass as _dataclass
from functools import cache, lru_cache
from typing import Any, cast

from cutlayer.errors import HeaderError, ParameterError

_KEY = "cutlayer"


@_dataclass(frozen=True)
class Parameter:
    """The declaration of a field.

    `wire` is its struct format in the header, or empty if it is not stored there.
    """

    help: str
    shown: bool
    wire: str

    def check(self, value: Any) -> Any:
        """The value in its canonical type, or ValueError with what was expected."""
        raise ValueError(value)

    def parse(self, text: str) -> Any:
        """A value from a spec string."""
        raise ValueError(text)

    def encode(self, value: Any) -> Any:
        """The value as it is stored in the header."""
        return value

    def decode(self, raw: Any) -> Any:
        """The value from what is stored in the header."""
        return raw

    def describe(self) -> str:
        """The allowed values, in words."""
        return ""


@_dataclass(frozen=True)
class _Real(Parameter):
    low: float
    high: float

    def check(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError
        number = float(value)
        if not (math.isfinite(number) and self.low <= number < self.high):
            raise ValueError
        return number + 0.0  # -0.0 would print and compare differently on the wire

    def parse(self, text: str) -> float:
        return float(text)

    def describe(self) -> str:
        return f"a number, {self.low:g} <= value < {self.high:g}"


@_dataclass(frozen=True)
class _Integer(Parameter):
    low: int
    high: int

    def check(self, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= self.high:
            raise ValueError
        return value

    def parse(self, text: str) -> int:
        return int(text)

    def describe(self) -> str:
        return f"an integer from {self.low} to {self.high}"


@_dataclass(frozen=True)
class _Choice(Parameter):
    options: tuple[str, ...]

    def check(self, value: Any) -> str:
        if value not in self.options:
            raise ValueError
        return cast(str, value)

    def parse(self, text: str) -> str:
        return text

    def encode(self, value: Any) -> int:
        return self.options.index(value)

    def decode(self, raw: Any) -> str:
        if not 0 <= raw < len(self.options):
            raise ValueError(f"choice number {raw}")
        return str(self.options[raw])

    def describe(self) -> str:
        return "one of " + ", ".join(self.options)


def real(
    default: float, low: float, high: float, help: str, *, shown: bool = True, in_header: bool = True
) -> Any:
    """A number with low <= value < high.

    With `in_header=False` it is not in the header: only the encoder uses it.
    """
    return field(default=default, metadata={_KEY: _Real(help, shown, "d" if in_header else "", low, high)})


def integer(
    default: int, low: int, high: int, help: str, *, shown: bool = True, in_header: bool = True
) -> Any:
    """An integer with low <= value <= high. `in_header`: see `real`."""
    wire = ("B" if high < 1 << 8 else "I" if high < 1 << 32 else "Q") if in_header else ""
    return field(default=default, metadata={_KEY: _Integer(help, shown, wire, low, high)})


def choice(default: str, *options: str, help: str, shown: bool = False, in_header: bool = True) -> Any:
    """One of a few words. `in_header`: see `real`."""
    return field(default=default, metadata={_KEY: _Choice(help, shown, "B" if in_header else "", options)})


def seed() -> Any:
    """The seed of a codec's random choices. Decoding does not need it, so it is not in the header."""
    return integer(0, 0, (1 << 64) - 1, "seed of the random choices", shown=False, in_header=False)


def nearest(word: str, known: Iterable[str]) -> str:
    """The hint ` (did you mean ...?)` if one of the known words is close, else an empty string."""
    near = difflib.get_close_matches(word, list(known), 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


@cache
def parameters(cls: Any) -> dict[str, tuple[Field[Any], Parameter]]:
    """The declared parameters of a codec class, in order."""
    return {f.name: (f, f.metadata[_KEY]) for f in fields(cls) if _KEY in f.metadata}


def validate(codec: Any) -> None:
    """Check and normalise all parameters of a codec that is being made."""
    for name, (_, parameter) in parameters(codec.__class__).items():
        value = getattr(codec, name)
        try:
            object.__setattr__(codec, name, parameter.check(value))
        except ValueError:
            raise ParameterError(
                f"{codec.name}: {name}={value!r} is not allowed; expected {parameter.describe()}"
            ) from None


def to_spec(codec: Any) -> str:
    """`name:key=value,...` with the parameters that matter or differ from their defaults."""
    parts = [
        f"{name}={getattr(codec, name)}"
        for name, (f, parameter) in parameters(codec.__class__).items()
        if parameter.shown or getattr(codec, name) != f.default
    ]
    return f"{codec.name}:{','.join(parts)}" if parts else str(codec.name)


def from_spec(cls: Any, text: str) -> Any:
    """A codec of class `cls` from the part of a spec string behind the colon."""
    known = parameters(cls)
    values: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, equals, raw = (s.strip() for s in part.partition("="))
        if not equals:
            fitting = [n for n, (_, p) in known.items() if part in getattr(p, "options", ())]
            hint = f" (did you mean {fitting[0]}={part}?)" if fitting else ""
            raise ParameterError(f"{cls.name}: {part!r} is not of the form key=value{hint}")
        if name not in known:
            raise ParameterError(
                f"{cls.name} has no parameter {name!r}{nearest(name, known)}. "
                f"It takes: {', '.join(known) or 'none'}"
            )
        if name in values:
            raise ParameterError(f"{cls.name}: {name} is given twice")
        parameter = known[name][1]
        try:
            values[name] = parameter.check(parameter.parse(raw))
        except ValueError:
            hint = nearest(raw, getattr(parameter, "options", ()))
            raise ParameterError(
                f"{cls.name}: {name}={raw} is not allowed; expected {parameter.describe()}{hint}"
            ) from None
    missing = [n for n, (f, _) in known.items() if f.default is MISSING and n not in values]
    if missing:
        raise ParameterError(f"{cls.name} needs {', '.join(missing)}")
    return cls(**values)


@cache
def _layout(cls: Any) -> tuple[struct.Struct, list[tuple[str, Parameter]]]:
    stored = [(n, p) for n, (_, p) in parameters(cls).items() if p.wire]
    return struct.Struct("<" + "".join(p.wire for _, p in stored)), stored


# All frames of a run have the same codec: the parameter block is cached, in both directions.
@lru_cache(maxsize=256)
def to_wire(codec: Any) -> bytes:
    """The parameter block of a frame."""
    layout, stored = _layout(codec.__class__)
    return layout.pack(*(p.encode(getattr(codec, n)) for n, p in stored))


def from_wire(cls: Any, block: bytes) -> tuple[Any, bytes]:
    """The codec that a parameter block describes, and the bytes that follow its parameters."""
    size = _layout(cls)[0].size
    if len(block) < size:
        raise HeaderError(f"the parameters of {cls.name} take {size} bytes, the header has {len(block)}")
    return _read(cls, block[:size]), block[size:]


@lru_cache(maxsize=256)
def _read(cls: Any, block: bytes) -> Any:
    layout, stored = _layout(cls)
    try:
        values = zip(stored, layout.unpack(block), strict=True)
        return cls(**{n: p.decode(v) for (n, p), v in values})
    except (ValueError, ParameterError) as error:
        raise HeaderError(f"the parameters of {cls.name} are not valid: {error}") from None
