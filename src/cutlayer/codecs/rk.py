"""`rk`: random-k sparsification, unbiased."""

from dataclasses import dataclass
from typing import ClassVar

from cutlayer.codecs import fields
from cutlayer.codecs.base import Codec, Writer
from cutlayer.codecs.sp import Sparsification
from cutlayer.codecs.sparse import RANDOM, SparseCodec, ratio_field, scope_field, store_field, values_field
from cutlayer.codecs.tensors import Tensor


@dataclass(frozen=True)
class RandomK(SparseCodec):
    """Keep k elements drawn uniformly, multiplied by d/k, so that the expectation is the tensor itself."""

    name: ClassVar[str] = "rk"
    id: ClassVar[int] = 6
    advice: ClassVar[str] = "unbiased, for the study of gradient bias; its error is large"

    ratio: float = ratio_field(0.95875)
    store: str = store_field()
    values: str = values_field()
    scope: str = scope_field()
    seed: int = fields.seed()

    def write(self, x: Tensor, writer: Writer) -> bytes:
        """See `Codec.write`."""
        return self._write(x, writer, RANDOM, enlarge=True)

    def deterministic(self) -> Codec:
        """Top-k: a fixed random set would always drop the same elements."""
        return Sparsification(self.ratio, self.store, self.values, self.scope)
