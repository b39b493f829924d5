"""Which codecs there are: the built-in ones in a table, others through entry points."""

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from cutlayer.codecs import fields
from cutlayer.codecs.base import NAMED, Codec
from cutlayer.codecs.dense import Dense
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
}
_BY_ID = {cls.id: cls for cls in BUILT_IN.values()}
GROUP = "cutlayer.codecs"


def codec(spec: str | Codec) -> Codec:
    """The codec that a spec string describes: `ms:ratio=0.99,bits=2`. A codec passes through."""
    if isinstance(spec, Codec):
        return spec
    if not isinstance(spec, str):
        raise SpecError(f"a codec is named by a string such as 'ms:ratio=0.99,bits=2', not {spec!r}")
    name, _, rest = spec.partition(":")
    found: Codec = fields.from_spec(codec_class(name.strip()), rest)
    return found


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
    """The codec of a frame, and what its parameter block holds beyond the parameters."""
    block = header.block
    if header.codec_id != NAMED:
        if header.codec_id not in _BY_ID:
            raise HeaderError(f"codec number {header.codec_id} is unknown; upgrade cutlayer")
        return fields.from_wire(_BY_ID[header.codec_id], block)
    if not block or len(block) < 1 + block[0]:
        raise HeaderError("the frame ends within its codec's name")
    try:
        name = block[1 : 1 + block[0]].decode("ascii")
        if name in BUILT_IN:
            raise HeaderError(f"the built-in codec {name} does not travel under its name")
        return fields.from_wire(codec_class(name), block[1 + block[0] :])
    except UnicodeDecodeError:
        raise HeaderError("the codec's name is not ASCII") from None
    except UnknownCodecError as error:
        raise HeaderError(f"{error}. Install the package that made the frame.") from None


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
