"""Code a section as elements or as DCT coefficients, whichever is better: `transform=auto`.

To encode both ways takes several times as long as one. So a preview, a few of the section's samples, is
encoded both ways first. Both ways are taken for the whole section only if the preview leaves the choice open.
"""

from collections.abc import Callable
from dataclasses import dataclass

from cutlayer.codecs.entropy.rate_control import Encoded
from cutlayer.codecs.entropy.section_shape import SectionShape
from cutlayer.codecs.tensors import Tensor

_PREVIEW_SHARE = 8  # one sample in so many is in the preview,
_MIN_PREVIEW, _MAX_PREVIEW = 1 << 15, 1 << 17  # within these limits, in elements
_MIN_STRIDE = 4  # of sections with fewer samples, a preview would be a large part
_TABLE_BYTES = 300  # that frequency tables take, about, however many elements there are
_WEIGHT_BYTES = 13  # of a channel in the context model of elements
_CONSTANT_BYTES = 64  # of a channel in the context model of coefficients
_CLEAR = (
    0.75  # coefficients are clearly better at this share of what elements cost; models fit few samples well
)


@dataclass(frozen=True)
class TransformChoice:
    """Two ways to encode some samples in a number of bytes, and what counts: the bytes, or the error."""

    elements: Callable[[Tensor, SectionShape, int], Encoded]
    coefficients: Callable[[Tensor, SectionShape, int], Encoded | None]
    # The error of what was encoded; None if both ways have the same error, so that bytes count.
    error: Callable[[Encoded, Tensor, SectionShape], float] | None

    def encode(self, x: Tensor, shape: SectionShape, budget: int) -> Encoded:
        """The better way of the two, as far as a preview can tell."""
        ratio = self._preview(x, shape, budget)
        transformed = self.coefficients(x, shape, budget) if ratio is None or ratio < 1 else None
        if transformed is not None and ratio is not None and ratio < _CLEAR:
            return transformed
        plain = self.elements(x, shape, budget)
        if transformed is None:
            return plain
        return min(plain, transformed, key=lambda found: self._cost(found, x, shape))

    def _cost(self, found: Encoded, x: Tensor, shape: SectionShape) -> float:
        return float(len(found[0])) if self.error is None else self.error(found, x, shape)

    def _preview(self, x: Tensor, shape: SectionShape, budget: int) -> float | None:
        """What coefficients cost, relative to elements; None if only the whole section can tell."""
        plain_side = _TABLE_BYTES + _WEIGHT_BYTES * shape.channels
        side = _TABLE_BYTES + _CONSTANT_BYTES * shape.channels + 2 * shape.channels**2
        if self.error is not None and 2 * side > budget:
            return float("inf")  # the rotation and the model alone would take half of the bytes
        size = min(max(shape.d // _PREVIEW_SHARE, _MIN_PREVIEW), _MAX_PREVIEW)
        part, stride = shape.thinned(size)
        if stride < _MIN_STRIDE:
            return None
        some = x.reshape(-1, shape.sample)[::stride].reshape(-1)
        share = part.d / shape.d

        def cost(encoded: Encoded, of: int) -> float:
            if self.error is not None:
                return self.error(encoded, some, part)
            return of + max(0.0, (len(encoded[0]) - of) / share)  # what a section has once does not grow

        # Each preview gets its share of the bytes that grow with the section.
        transformed = self.coefficients(some, part, side + int((budget - side) * share))
        if transformed is None:
            return float("inf")
        plain = self.elements(some, part, plain_side + int((budget - plain_side) * share))
        return cost(transformed, side) / max(cost(plain, plain_side), 1e-300)
