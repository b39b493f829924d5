"""The registry of codecs: built-in ones in a literal table, others through entry points or `register`."""

import re
from dataclasses import is_dataclass
from functools import cache
from typing import Any, TypeVar

from cutlayer.codecs import fields
from cutlayer.codecs.base import NAMED, Codec
from cutlayer.codecs.dense import Dense
from cutlayer.codecs.ems import EntropyCodedMask
from cutlayer.codecs.frame import Header
from cutlayer.codecs.kernels.float_types import IntegerType
from cutlayer.codecs.km import KMeans
from cutlayer.codecs.ms import MaskEncodedSparsification
from cutlayer.codecs.qu import Quantization
from cutlayer.codecs.rivals.c3sl import CircularConvolution
from cutlayer.codecs.rivals.fedlite import ProductQuantization
from cutlayer.codecs.rivals.slacc import ChannelEntropy
from cutlayer.codecs.rivals.splitfc import FeatureWiseCompression
from cutlayer.codecs.rivals.uq import UniformQuantization
from cutlayer.codecs.rk import RandomK
from cutlayer.codecs.rt import RandomizedTopK
from cutlayer.codecs.sp import Sparsification
from cutlayer.codecs.tensor_set.integers import PackedIntegers
from cutlayer.errors import HeaderError, SpecError, UnknownCodecError

BUILT_IN: dict[str, type[Codec]] = {
    "dense": Dense,
    "qu": Quantization,
    "sp": Sparsification,
    "ms": MaskEncodedSparsification,
    "rt": RandomizedTopK,
    "rk": RandomK,
    "km": KMeans,
    "ems": EntropyCodedMask,
    # Methods of others, and controls: `rivals/`.
    "splitfc": FeatureWiseCompression,
    "fedlite": ProductQuantization,
    "slacc": ChannelEntropy,
    "c3sl": CircularConvolution,
    "uq": UniformQuantization,
}
# Integers travel under a codec of their own, which nobody chooses.
_BY_ID: dict[int, type[Codec]] = {cls.id: cls for cls in BUILT_IN.values()}
_BY_ID[PackedIntegers.id] = PackedIntegers
_REGISTERED: dict[str, type[Codec]] = {}  # by `register`, in this process
_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
GROUP = "cutlayer.codecs"


C = TypeVar("C", bound=type[Codec])


def register(cls: C) -> C:
    """Make a codec class known to `codec` and `decode` in this process; returns it, so it can decorate.

    For codecs in notebooks and scripts. A package declares an entry point instead. To run a cell again
    replaces the class.
    """
    if not (isinstance(cls, type) and issubclass(cls, Codec) and is_dataclass(cls)):
        raise SpecError(f"register() takes a frozen dataclass that derives from Codec, not {cls!r}")
    if not _NAME.fullmatch(cls.name) or cls.id != NAMED:
        raise SpecError(
            f"{cls.__name__}: a codec of your own has a name of up to 64 lower-case letters and digits "
            f"(it has {cls.name!r}), and leaves `id` alone"
        )
    before = _REGISTERED.get(cls.name)
    other = before is not None and (before.__module__, before.__qualname__) != (
        cls.__module__,
        cls.__qualname__,
    )
    if cls.name in BUILT_IN or cls.name in _installed() or other:
        raise SpecError(f"there is a codec {cls.name!r} already; give {cls.__name__} another name")
    _REGISTERED[cls.name] = cls
    return cls


def codec(spec: str | Codec) -> Codec:
    """The codec that a spec string describes: `ms:ratio=0.99,bits=2`. A codec passes through."""
    if isinstance(spec, Codec):
        return spec
    if not isinstance(spec, str):
        raise SpecError(f"a codec is named by a string such as 'ms:ratio=0.99,bits=2', not {spec!r}")
    name, colon, rest = spec.partition(":")
    if not colon and ("=" in spec or "," in spec):
        first = name.split(",")[0].strip()
        raise SpecError(
            f"{spec!r}: put a colon between the name and the parameters, as in '{first}:key=value'"
        )
    found: Codec = fields.from_spec(codec_class(name.strip()), rest)
    return found


def codec_of(spec: str) -> Codec:
    """The codec of a setting; `none` is dense float32."""
    return Dense() if spec == "none" else codec(spec)


def codec_class(name: str) -> type[Codec]:
    """The class of a codec, by name."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name in _installed():
        return _load(name)
    known = names()
    raise UnknownCodecError(
        f"there is no codec {name!r}{fields.nearest(name, known)}. There are: {', '.join(known)}"
    )


def names() -> list[str]:
    """The names of all codecs, built-in ones first."""
    return [*BUILT_IN, *sorted({*_installed(), *_REGISTERED} - set(BUILT_IN))]


def describe(header: Header) -> tuple[str, bool]:
    """The spec of a frame's codec, and whether that codec is known here; a number or a name if it is not."""
    if header.codec_id == NAMED:
        name = _name_in(header)
        if name not in BUILT_IN and name not in _REGISTERED and name not in _installed():
            return name if _NAME.fullmatch(name) else repr(name), False
    elif header.codec_id not in _BY_ID:
        return f"codec number {header.codec_id}", False
    return str(from_header(header)[0]), True


def from_header(header: Header) -> tuple[Codec, bytes]:
    """The codec of a frame, and the bytes that follow its parameters in the header."""
    cls, block = _class_of(header)
    if (cls is PackedIntegers) != isinstance(header.dtype, IntegerType):
        raise HeaderError(f"a frame of {cls.name} cannot hold {header.dtype}")
    found: Codec
    found, side = fields.from_wire(cls, block)
    if len(side) != found.side_bytes():
        raise HeaderError(
            f"{found.side_bytes()} bytes should follow the parameters of {found.name}, not {len(side)}"
        )
    if header.signed and not cls.signs:
        raise HeaderError(f"the sign flag is set, but {found.name} has no use for it")
    return found, side


def _class_of(header: Header) -> tuple[type[Codec], bytes]:
    """The class of a frame's codec, and the parameter block without its name."""
    block = header.block
    if header.codec_id != NAMED:
        if header.codec_id not in _BY_ID:
            raise HeaderError(f"codec number {header.codec_id} is unknown; upgrade cutlayer")
        return _BY_ID[header.codec_id], block
    name = _name_in(header)
    if name in BUILT_IN:
        raise HeaderError(f"the built-in codec {name} does not travel under its name")
    rest = block[1 + block[0] :]
    if name in _REGISTERED:
        return _REGISTERED[name], rest
    if name not in _installed():
        raise HeaderError(
            f"the frame was made by the codec {name!r}; install the package that provides it, or give its "
            "class to cutlayer.register"
        )
    return _load(name), rest


def _name_in(header: Header) -> str:
    """The name of a third-party codec in a header."""
    block = header.block
    if not block or len(block) < 1 + block[0]:
        raise HeaderError("the frame ends within its codec's name")
    try:
        return block[1 : 1 + block[0]].decode("ascii")
    except UnicodeDecodeError:
        raise HeaderError("the codec's name is not ASCII") from None


@cache
def _installed() -> dict[str, Any]:
    from importlib.metadata import entry_points  # slow to import; built-in codecs need none

    return {point.name: point for point in entry_points(group=GROUP)}


@cache
def _load(name: str) -> type[Codec]:
    point = _installed()[name]
    try:
        cls = point.load()
    except Exception as error:
        raise UnknownCodecError(f"the codec {name!r} ({point.value}) cannot be loaded: {error}") from error
    if not (isinstance(cls, type) and issubclass(cls, Codec)) or cls.name != name:
        raise UnknownCodecError(
            f"the entry point {name!r} ({point.value}) is not a Codec subclass of that name"
        )
    return cls
