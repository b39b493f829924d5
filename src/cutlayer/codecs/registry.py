"""The registry of codecs: built-in ones in a literal table, others through entry points."""

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from cutlayer.codecs import fields
from cutlayer.codecs.base import NAMED, Codec
from cutlayer.codecs.dense import Dense
from cutlayer.codecs.ems import EntropyCodedMask
from cutlayer.codecs.frame import Header
from cutlayer.codecs.km import KMeans
from cutlayer.codecs.ms import MaskEncodedSparsification
from cutlayer.codecs.qu import Quantization
from cutlayer.codecs.rk import RandomK
from cutlayer.codecs.rt import RandomizedTopK
from cutlayer.codecs.sp import Sparsification
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
}
_BY_ID = {cls.id: cls for cls in BUILT_IN.values()}
GROUP = "cutlayer.codecs"


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
    if name in _installed():
        return _load(name)
    known = names()
    raise UnknownCodecError(
        f"there is no codec {name!r}{fields.nearest(name, known)}. There are: {', '.join(known)}"
    )


def names() -> list[str]:
    """The names of all codecs, built-in ones first."""
    return [*BUILT_IN, *sorted(set(_installed()) - set(BUILT_IN))]


def from_header(header: Header) -> tuple[Codec, bytes]:
    """The codec of a frame, and the bytes that follow its parameters in the header."""
    cls, block = _class_of(header)
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
    if not block or len(block) < 1 + block[0]:
        raise HeaderError("the frame ends within its codec's name")
    try:
        name = block[1 : 1 + block[0]].decode("ascii")
    except UnicodeDecodeError:
        raise HeaderError("the codec's name is not ASCII") from None
    if name in BUILT_IN:
        raise HeaderError(f"the built-in codec {name} does not travel under its name")
    if name not in _installed():
        raise HeaderError(f"the frame was made by the codec {name!r}; install the package that provides it")
    return _load(name), block[1 + block[0] :]


@cache
def _installed() -> dict[str, EntryPoint]:
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
