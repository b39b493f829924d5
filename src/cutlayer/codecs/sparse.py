"""The base of the sparse codecs (`sp`, `rt`, `rk`): positions and values of k elements."""

from dataclasses import replace
from functools import lru_cache
from typing import ClassVar, Self

from cutlayer.codecs import fields
from cutlayer.codecs.base import Codec, Reader, Writer, accept, kept
from cutlayer.codecs.kernels.dispatch import check
from cutlayer.codecs.tensors import VALUE_DTYPES, VALUE_NAMES, Tensor
from cutlayer.errors import HeaderError

TOP, RANDOMIZED, RANDOM = 0, 1, 2  # which k elements are kept: top-k, randomized top-k, random-k


def ratio_field(default: float, *, shown: bool = True) -> float:
    """The parameter `ratio`: the share of elements that are not kept."""
    help = "share of elements dropped; k = floor((1 - ratio) d) stay, at least 1"
    value: float = fields.real(default, 0, 1, help, shown=shown)
    return value


def store_field() -> str:
    """The parameter `store`: how the positions of kept elements are stored."""
    help = "a 1-bit mask, 32-bit keys, or whichever is smaller"
    value: str = fields.choice("auto", "auto", "mask", "keys", help=help)
    return value


def values_field() -> str:
    """The parameter `values`: the type of kept values in a frame."""
    value: str = fields.choice("float32", *VALUE_NAMES, help="type of the kept values on the wire")
    return value


def scope_field(default: str = "tensor") -> str:
    """The parameter `scope`: whether the tensor is one section, or each sample is one."""
    help = "one selection for the whole tensor, or for each sample alone"
    value: str = fields.choice(default, "tensor", "sample", help=help)
    return value


class SparseCodec(Codec):
    """Base of the sparse codecs.

    Each declares these fields itself, since their order in the header differs.
    """

    signs: ClassVar[bool] = False

    ratio: float
    store: str
    values: str
    scope: str

    @lru_cache(maxsize=256)  # noqa: B019 - codecs are small, immutable and few
    def _plan(self, shape: tuple[int, ...]) -> tuple[int, int, bool, Self, int]:
        """Sections, k, whether keys are stored, this codec with `store` decided, the bytes of a section."""
        rows, d = self.sections(shape)
        k, store = kept(self.ratio, d), self.store
        value_bytes = k * VALUE_DTYPES[self._values].itemsize
        sizes = {"mask": (d + 7) // 8 + value_bytes, "keys": 4 * k + value_bytes}
        if store == "auto":
            store = "keys" if sizes["keys"] < sizes["mask"] else "mask"
        return rows, k, store == "keys", replace(self, store=store), sizes[store]  # type: ignore[call-arg]

    @property
    def _values(self) -> int:
        return VALUE_NAMES.index(self.values)

    def payload_bytes(self, shape: tuple[int, ...], signed: bool = False) -> int:
        """See `Codec.payload_bytes`."""
        rows, *_, size = self._plan(shape)
        return rows * size

    def _write(
        self,
        x: Tensor,
        writer: Writer,
        pick: int,
        *,
        alpha: float = 0.0,
        coin: bool = False,
        enlarge: bool = False,
    ) -> bytes:
        rows, k, keys, decided, size = self._plan(writer.source.shape)
        frame, offset = writer.open(decided, rows * size)
        scale = x.shape[1] / k if enlarge else 1.0
        largest = writer.kernels.sparse_encode(
            x,
            k,
            pick,
            alpha,
            coin,
            writer.seed,
            keys,
            self._values,
            scale,
            frame,
            offset,
        )
        accept(largest, writer, VALUE_DTYPES[self._values], scale)
        return writer.close(frame)

    def read(self, reader: Reader, out: Tensor) -> None:
        """See `Codec.read`."""
        _, k, keys, _, _ = self._plan(reader.header.shape)
        if self.store == "auto":
            raise HeaderError("a frame says how its elements are stored; this one says auto")
        check(
            reader.kernels.sparse_decode(
                reader.data, reader.header.payload_offset, k, keys, self._values, out
            )
        )
