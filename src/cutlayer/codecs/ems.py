"""`ems`: entropy-coded mask sparsification."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

from cutlayer.codecs import fields, frame
from cutlayer.codecs.base import Codec, Reader, Writer, accept, kept
from cutlayer.codecs.entropy.dct import dct_applies
from cutlayer.codecs.entropy.dct_section import squared_error
from cutlayer.codecs.entropy.layout import MAX_LEVELS
from cutlayer.codecs.entropy.payload_reader import payload_of, read_sections
from cutlayer.codecs.entropy.plain.payload import Payload
from cutlayer.codecs.entropy.plain.section import PlainTarget
from cutlayer.codecs.entropy.rate_control import Encoded
from cutlayer.codecs.entropy.section_shape import SectionShape, section_shape
from cutlayer.codecs.entropy.stochastic_section import StochasticSection
from cutlayer.codecs.entropy.tokens.section import encode_tokens
from cutlayer.codecs.entropy.tokens.transform import Target
from cutlayer.codecs.entropy.transform.choice import TransformChoice
from cutlayer.codecs.kernels.float_types import FLOAT32
from cutlayer.codecs.kernels.interface import Kernels
from cutlayer.codecs.sparse import ratio_field, scope_field
from cutlayer.codecs.tensors import VALUE_DTYPES, VALUE_NAMES, Tensor, count
from cutlayer.errors import HeaderError, ParameterError

_DEFAULT_BPE = 1.0
_DEFAULT_STEP = 2.0
_HEADER = 32  # bytes of a section's header with a stored mask, without reconstruction points


@dataclass(frozen=True)
class EntropyCodedMask(Codec):
    """The mask of `ms`, with any number of levels, entropy-coded by rANS with a context model.

    Levels decode to the mean of their elements. Set a rate (`bpe`), an error bound (`error`) or `levels`;
    without any of them, the rate is one bit an element.
    """

    name: ClassVar[str] = "ems"
    id: ClassVar[int] = 8
    advice: ClassVar[str] = "the fewest bits at equal error; give bpe=, error= or levels="
    fixed_size: ClassVar[bool] = False

    bpe: float = fields.real(
        0.0, 0, 64, "at most so many bits an element, header included", shown=False, in_header=False
    )
    error: float = fields.real(
        0.0, 0, 1, "at most this relative squared error, in the fewest bytes", shown=False, in_header=False
    )
    step: float = fields.real(
        0.0, 0, 1024, "quantizer step, in multiples of the root mean square", shown=False, in_header=False
    )
    ratio: float = ratio_field(0.995, shown=False)
    levels: int = fields.integer(0, 0, MAX_LEVELS, "levels below the top values", shown=False)
    rounding: str = fields.choice(
        "mean",
        "floor",
        "nearest",
        "mean",
        "stochastic",
        help="levels decode to their means, exactly as in ms, or are drawn without bias (for gradients)",
    )
    values: str = fields.choice("float16", *VALUE_NAMES, help="type of the top values on the wire")
    scope: str = scope_field()
    transform: str = fields.choice(
        "none",
        "none",
        "dct",
        "auto",
        help="code elements, DCT coefficients of 8 x 8 blocks, or whichever is better",
        in_header=False,
    )
    layout: str = fields.choice(
        "auto",
        "auto",
        "maps",
        "tokens",
        help="whether the last dimension counts channels of tokens (auto: if 3-d with negative values)",
        in_header=False,
    )
    rotation: str = fields.choice(
        "auto",
        "auto",
        "none",
        "pca",
        help="tokens: code channels, or their principal axes; auto estimates what takes fewer bits",
        in_header=False,
    )
    scales: str = fields.choice(
        "none",
        "none",
        "channel",
        help="tokens: one step for all channels, or in proportion to each one's spread",
        in_header=False,
    )
    seed: int = fields.seed()

    def __post_init__(self) -> None:
        super().__post_init__()
        asked = [n for n in ("bpe", "error", "levels", "step") if getattr(self, n)]
        if len(asked) > 1:
            raise ParameterError(f"ems: give one of bpe, error, levels and step, not {' and '.join(asked)}")
        if self._stochastic and (self.error or self.transform != "none"):
            raise ParameterError("ems: rounding=stochastic takes step=, bpe= or levels=, and no transform")
        if self.rounding in ("floor", "nearest") and not self.levels:
            raise ParameterError(
                f"ems: rounding={self.rounding} needs levels=, as in ems:levels=3,rounding=nearest"
            )
        if self.transform != "none" and (self.levels or self.step):
            raise ParameterError(f"ems: transform={self.transform} needs bpe= or error=, not {asked[0]}=")
        if self.layout == "maps" and (self.rotation != "auto" or self.scales == "channel"):
            raise ParameterError("ems: rotation= and scales=channel are for tokens, not for layout=maps")
        if self.layout == "tokens" and (self.rounding != "mean" or self.levels or self.transform != "none"):
            raise ParameterError("ems: layout=tokens takes bpe=, error= or step=, and no transform=")
        if not asked:
            name, default = ("step", _DEFAULT_STEP) if self._stochastic else ("bpe", _DEFAULT_BPE)
            object.__setattr__(self, name, default)

    @property
    def _stochastic(self) -> bool:
        return self.rounding == "stochastic"

    @property
    def _values(self) -> int:
        return VALUE_NAMES.index(self.values)

    def payload_bytes(self, shape: tuple[int, ...], signed: bool = False) -> int:
        """The upper limit of the payload's size. With `levels`: the size of `ms` plus the sections' headers.

        With `bpe` it is the budget, and with `error` the size with the most levels.
        """
        rows, d = self.sections(shape)
        if self.bpe:
            return math.floor(self.bpe * rows * d / 8)
        levels = self.levels or MAX_LEVELS
        values = kept(self.ratio, d) * VALUE_DTYPES[self._values].itemsize
        return rows * ((d * (levels.bit_length() + signed) + 7) // 8 + values + _HEADER + 16 * levels)

    def write(self, x: Tensor, writer: Writer) -> bytes:
        """See `Codec.write`."""
        shape = section_shape(writer.source.shape, x.shape[0])
        parts, levels, signed = self._sections(x, writer, shape)
        decided = _decided(self.ratio, levels, self.rounding, self.values, self.scope)
        opened, offset = writer.open(decided, sum(map(len, parts)), signed=signed)
        for part in parts:
            writer.kernels.put_bytes(opened, offset, part)
            offset += len(part)
        return writer.close(opened)

    def _tops(self, d: int) -> int:
        """The number of top values of d elements."""
        k = kept(self.ratio, d)
        # They take at most an eighth of a budget.
        return max(1, min(k, int(self.bpe * d / 128))) if self.bpe else k

    def _sections(self, x: Tensor, writer: Writer, shape: SectionShape) -> tuple[list[bytes], int, bool]:
        """All sections, the largest number of levels of any, and whether there are negative values."""
        top: Any = writer.kernels.select_top(x, self._tops(shape.d))
        accept(top.largest, writer, VALUE_DTYPES[0 if self._stochastic else self._values])
        signed = bool(top.negative)
        header = _header_size(writer.source.shape)
        budget = (math.floor(self.bpe * count(x) / 8) - header) // len(x)
        if not (self._stochastic or self._has_tokens(writer, signed) or self.transform != "none"):
            found = self._plain(x, top, range(len(x)), signed, shape, budget, writer.kernels)
            return [found[0]], found[1], signed
        parts, most = [], 1
        for row in range(len(x)):
            if self._stochastic:
                found = self._random(StochasticSection(x, top, row, signed, shape, writer), budget)
            else:
                found = self._tokens(x[row], top, budget, writer) or self._by_rate(
                    x, top, row, signed, shape, budget, writer.kernels
                )
            parts.append(found[0])
            most = max(most, found[1])
        return parts, most, signed

    def _random(self, section: StochasticSection, budget: int) -> Encoded:
        """A section by stochastic rounding."""
        if self.bpe:
            return section.within_bytes(budget)
        if self.levels:
            return section.at_step(section.topmin / self.levels or 1.0, self.levels)
        return section.at_step(self.step * section.spread or 1.0)

    def _has_tokens(self, writer: Writer, signed: bool) -> bool:
        """Whether the tensor is coded as tokens, as far as its shape allows."""
        named = self.layout == "tokens" or self.scales == "channel" or self.rotation == "pca"
        found = self.layout == "auto" and len(writer.source.shape) == 3 and signed
        usable = self.rounding == "mean" and not self.levels and self.transform == "none"
        return usable and (named or found)

    def _tokens(self, x: Tensor, top: Any, budget: int, writer: Writer) -> Encoded | None:
        """A section of tokens; None if the tensor has none, or they cannot be coded as such."""
        if not self._has_tokens(writer, bool(top.negative)):
            return None
        # Of a rate, what the section may take counts, its head included.
        target = Target(self.bpe and 8 * budget / count(x), self.error, self.step)
        scale, values = self.scales == "channel", self._values
        return encode_tokens(x, top.largest, budget, target, values, writer, scale, self.rotation)

    def _by_rate(
        self, x: Tensor, top: Any, row: int, signed: bool, shape: SectionShape, budget: int, kernels: Kernels
    ) -> Encoded:
        """A section of DCT coefficients where these are wanted or better, else one of elements."""

        def elements(some: Tensor, of: SectionShape, size: int) -> Encoded:
            if of == shape:
                return self._plain(x, top, range(row, row + 1), signed, shape, size, kernels)
            few = some.reshape(1, -1)
            return self._plain(
                few, kernels.select_top(few, self._tops(of.d)), range(1), signed, of, size, kernels
            )

        def coefficients(some: Tensor, of: SectionShape, size: int) -> Encoded | None:
            return kernels.ems_encode_dct(some, of, self._values, size if self.bpe else None, self.error)

        def lost(encoded: Encoded, some: Tensor, of: SectionShape) -> float:
            return squared_error(encoded, some, of, self._values, signed, kernels)

        if not dct_applies(shape) or self.transform == "none":
            return elements(x[row], shape, budget)
        if self.transform == "dct":
            return coefficients(x[row], shape, budget) or elements(x[row], shape, budget)
        choice = TransformChoice(elements, coefficients, lost if self.bpe else None)
        return choice.encode(x[row], shape, budget)

    def _plain(
        self,
        x: Tensor,
        top: Any,
        rows: range,
        signed: bool,
        shape: SectionShape,
        budget: int,
        kernels: Kernels,
    ) -> Encoded:
        """Sections of elements."""
        target = PlainTarget(budget if self.bpe else None, self.levels, self.step, self.error, self.rounding)
        found = kernels.ems_encode_sections(x, top, rows, shape, self._values, signed, target)
        if found is None:
            raise ParameterError(
                f"ems: error={self.error} is less than values={self.values} leaves; "
                "use values=float32 or allow more"
            )
        return found

    def deterministic(self) -> Codec:
        """See `Codec.deterministic`. Stochastic rounding becomes the usual quantizer."""
        return replace(self, rounding="mean") if self._stochastic else self

    def read(self, reader: Reader, out: Tensor) -> None:
        """See `Codec.read`."""
        self._check_levels()
        read_sections(reader, out, self.levels, self.rounding, self._values)

    def payload(self, reader: Reader, out: Tensor) -> Payload:
        """What the kernels must know of a frame to decode it into `out`, a row for each section."""
        self._check_levels()
        return payload_of(reader, out, self.levels, self.rounding, self._values)

    def _check_levels(self) -> None:
        if not self.levels:
            raise HeaderError("an ems frame says how many levels it has; this one says 0")


@lru_cache(maxsize=256)
def _decided(ratio: float, levels: int, rounding: str, values: str, scope: str) -> EntropyCodedMask:
    """The codec that a frame's header names, with the levels that the encoder has found."""
    return EntropyCodedMask(ratio=ratio, levels=levels, rounding=rounding, values=values, scope=scope)


@lru_cache(maxsize=256)
def _header_size(shape: tuple[int, ...]) -> int:
    """The size of the header of a frame for a tensor of this shape."""
    block = _decided(0.5, 1, "mean", "float16", "tensor").block()
    return len(frame.build(EntropyCodedMask.id, FLOAT32, False, shape, block, 0))
