"""Code a section as elements or as DCT coefficients, whichever is better: `transform=auto`.

To encode both ways takes several times as long as one. Where neighbours have little in common, a DCT gains
nothing, nor does it at high rates behind a ReLU. There elements are coded at once. Else a preview, a few of
the section's samples, is encoded both ways, and tells how to encode the section. A section with too few
samples for a preview is encoded both ways itself.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cutlayer.codecs.entropy.rate_control import Encoded
from cutlayer.codecs.entropy.section_shape import SectionShape
from cutlayer.codecs.tensors import Tensor, host

_PREVIEW_SHARE = 8  # one sample in so many is in the preview,
_MIN_PREVIEW, _MAX_PREVIEW = 1 << 15, 1 << 17  # within these limits, in elements
_GAIN_SHARE, _MIN_GAIN_ELEMENTS = 64, 1 << 14  # one element in 64, or more, tells the coding gain
_MIN_GAIN = 2.2  # coding gain from which a DCT is worth a preview,
_GAIN_A_BIT, _FREE_BITS = 5.5, 0.5  # and so many times that for each bit an element above half a bit,
_MANY_ZEROS = 0.25  # if this share of elements is 0: elements code a zero for little, coefficients have none
_MIN_STRIDE = 4  # of sections with fewer samples, a preview would be a large part
_TABLE_BYTES = 300  # that frequency tables take, about, however many elements there are
_WEIGHT_BYTES = 13  # of a channel in the context model of elements
_CONSTANT_BYTES = 64  # of a channel in the context model of coefficients
_WORTH = 1.1  # coefficients are chosen up to this cost: few samples show too little of what their model gains


@dataclass(frozen=True)
class TransformChoice:
    """Two ways to encode some samples in a number of bytes, and what counts: the bytes, or the error."""

    elements: Callable[[Tensor, SectionShape, int], Encoded]
    coefficients: Callable[[Tensor, SectionShape, int], Encoded | None]
    # The error of what was encoded; None if both ways have the same error, so that bytes count.
    error: Callable[[Encoded, Tensor, SectionShape], float] | None

    def encode(self, x: Tensor, shape: SectionShape, budget: int) -> Encoded:
        """The better way of the two, as far as a preview can tell."""
        planes = _some_planes(x, shape)
        gain, wanted = coding_gain(planes), _MIN_GAIN
        if self.error is not None and float((planes == 0).mean()) > _MANY_ZEROS:
            wanted *= _GAIN_A_BIT ** max(0.0, 8 * budget / shape.d - _FREE_BITS)
        if gain < wanted:
            return self.elements(x, shape, budget)
        ratio = self._preview(x, shape, budget)
        transformed = self.coefficients(x, shape, budget) if ratio is None or ratio < _WORTH else None
        if transformed is not None and ratio is not None:
            return transformed
        plain = self.elements(x, shape, budget)
        if transformed is None:
            return plain
        return min(plain, transformed, key=lambda found: self._cost(found, x, shape))

    def _cost(self, found: Encoded, x: Tensor, shape: SectionShape) -> float:
        return float(len(found[0])) if self.error is None else self.error(found, x, shape)

    def _preview(self, x: Tensor, shape: SectionShape, budget: int) -> float | None:
        """What coefficients cost, relative to elements; None if only the whole section can tell."""
        once = _CONSTANT_BYTES * shape.channels + 2 * shape.channels**2  # model and rotation of coefficients
        if self.error is not None and 2 * once > budget:
            return float("inf")
        part, stride = shape.thinned(min(max(shape.d // _PREVIEW_SHARE, _MIN_PREVIEW), _MAX_PREVIEW))
        if stride < _MIN_STRIDE:
            return None
        side, plain_side = _TABLE_BYTES + once, _TABLE_BYTES + _WEIGHT_BYTES * shape.channels
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


def _some_planes(x: Tensor, shape: SectionShape) -> NDArray[np.float64]:
    """All planes of a few samples, spread over the section."""
    samples = x.reshape(-1, shape.channels, shape.height, shape.width)
    stride = -(-shape.d // max(_MIN_GAIN_ELEMENTS, shape.d // _GAIN_SHARE, shape.sample))
    planes: NDArray[np.float64] = host(samples[::stride]).astype(np.float64)
    return planes


def coding_gain(planes: NDArray[np.float64]) -> float:
    """The gain of an ideal transform over elements, if both rows and columns were first-order autoregressive.

    That is 1 / ((1 - r^2) (1 - s^2)), where r and s are the correlations of neighbours across and down.
    """
    centred = planes - planes.mean((0, 2, 3), keepdims=True)
    twice = 2 * float(np.square(centred).mean())
    if twice == 0:
        return 1.0
    gain = 1.0
    for axis in (2, 3):
        correlation = 1 - float(np.square(np.diff(centred, axis=axis)).mean()) / twice
        gain *= max(1 - max(correlation, 0.0) ** 2, 1e-9)
    return 1 / gain
