"""`sp`: top-k sparsification."""

from dataclasses import dataclass
from typing import ClassVar

from cutlayer.codecs.base import Writer
from cutlayer.codecs.sparse import TOP, SparseCodec, ratio_field, scope_field, store_field, values_field
from cutlayer.codecs.tensors import Tensor


@dataclass(frozen=True)
class Sparsification(SparseCodec):
    """Keep the k largest magnitudes; all other elements become 0."""

    name: ClassVar[str] = "sp"
    id: ClassVar[int] = 3
    advice: ClassVar[str] = "the classic; good for gradients, poor for feature maps at high ratios"

    ratio: float = ratio_field(0.95875)
    store: str = store_field()
    values: str = values_field()
    scope: str = scope_field()

    def write(self, x: Tensor, writer: Writer) -> bytes:
        """See `Codec.write`."""
        return self._write(x, writer, TOP)
