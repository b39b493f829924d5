"""`rt`: randomized top-k (IJCAI 2023)."""

from dataclasses import dataclass
from typing import ClassVar

from cutlayer.codecs import fields
from cutlayer.codecs.base import Codec, Writer
from cutlayer.codecs.sp import Sparsification
from cutlayer.codecs.sparse import (
    RANDOMIZED,
    SparseCodec,
    ratio_field,
    scope_field,
    store_field,
    values_field,
)
from cutlayer.codecs.tensors import Tensor


@dataclass(frozen=True)
class RandomizedTopK(SparseCodec):
    """Keep k elements drawn at random, most of them among the top k.

    There are only two weights: one for top elements, one for the others. Once it is known how many of the k
    draws fall on top elements, both groups are uniform subsets. So the cost is O(d), not O(d k).
    """

    name: ClassVar[str] = "rt"
    id: ClassVar[int] = 5
    advice: ClassVar[str] = "sp with exploration; for training only, evaluation uses plain top-k"

    ratio: float = ratio_field(0.95875)
    alpha: float = fields.real(0.1, 0, 1, "total weight of the elements outside the top k")
    draw: str = fields.choice(
        "weights",
        "weights",
        "coin",
        help="weighted draws without replacement, or an alpha coin a draw",
    )
    store: str = store_field()
    values: str = values_field()
    scope: str = scope_field("sample")
    seed: int = fields.seed()

    def write(self, x: Tensor, writer: Writer) -> bytes:
        """See `Codec.write`."""
        return self._write(x, writer, RANDOMIZED, alpha=self.alpha, coin=self.draw == "coin")

    def deterministic(self) -> Codec:
        """Plain top-k, as in evaluation."""
        return Sparsification(self.ratio, self.store, self.values, self.scope)
