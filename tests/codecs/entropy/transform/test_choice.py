"""`transform=auto` encodes a whole section one way, if neighbours or a preview tell which."""

from dataclasses import dataclass, field

import numpy as np
import pytest

import cutlayer
from cutlayer.codecs.entropy.rate_control import Encoded
from cutlayer.codecs.entropy.section_shape import SectionShape
from cutlayer.codecs.entropy.transform.choice import TransformChoice, coding_gain
from cutlayer.codecs.tensors import Tensor

SHAPE = SectionShape(1 << 18, 4, 16, 16)  # 256 samples
PLAIN, TRANSFORMED = b"plain", b"transformed"
BUDGET = 1 << 15


def ramps(shape: SectionShape) -> np.ndarray:
    """Planes whose neighbours have much in common."""
    plane = np.add.outer(np.arange(shape.height), np.arange(shape.width)).astype(np.float32)
    return np.tile(plane.ravel(), shape.d // plane.size)


@dataclass
class Ways:
    """Both ways of encoding, with given errors, and who was asked to encode how many elements."""

    plain: float
    transformed: float | None
    asked: list[tuple[bytes, int, int]] = field(default_factory=list)

    def elements(self, x: Tensor, shape: SectionShape, budget: int) -> Encoded:
        assert x.size == shape.d
        self.asked.append((PLAIN, shape.d, budget))
        return PLAIN, 1

    def coefficients(self, x: Tensor, shape: SectionShape, budget: int) -> Encoded | None:
        self.asked.append((TRANSFORMED, shape.d, budget))
        return None if self.transformed is None else (TRANSFORMED, 1)

    def error(self, encoded: Encoded, x: Tensor, shape: SectionShape) -> float:
        found = self.plain if encoded[0] == PLAIN else self.transformed
        assert found is not None
        return found * shape.d

    def encode(self, shape: SectionShape = SHAPE, budget: int = BUDGET, x: np.ndarray | None = None) -> bytes:
        choice = TransformChoice(self.elements, self.coefficients, self.error)
        return choice.encode(ramps(shape) if x is None else x, shape, budget)[0]

    def whole(self, shape: SectionShape = SHAPE) -> set[bytes]:
        """The ways in which the whole section was encoded."""
        return {way for way, d, _ in self.asked if d == shape.d}


@pytest.mark.parametrize(
    ("transformed", "tried", "chosen"),
    [(0.5, {TRANSFORMED}, TRANSFORMED), (1.5, {PLAIN}, PLAIN), (None, {PLAIN}, PLAIN)],
)
def test_the_preview_tells_how_the_whole_section_is_encoded(
    transformed: float | None, tried: set[bytes], chosen: bytes
) -> None:
    ways = Ways(1.0, transformed)
    assert ways.encode() == chosen
    assert ways.whole() == tried


def test_neighbours_with_little_in_common_need_no_preview() -> None:
    x = np.random.default_rng(0).standard_normal(SHAPE.d).astype(np.float32)
    ways = Ways(1.0, 0.1)
    assert ways.encode(x=x) == PLAIN
    assert ways.asked == [(PLAIN, SHAPE.d, BUDGET)]


@pytest.mark.parametrize(("bits", "tried"), [(0.5, {PLAIN, TRANSFORMED}), (2.0, {PLAIN})])
def test_behind_a_relu_a_high_rate_needs_no_preview(bits: float, tried: set[bytes]) -> None:
    shape, budget = SHAPE, int(bits * SHAPE.d / 8)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((shape.samples, shape.channels, shape.height, shape.width)).astype(np.float32)
    for axis in (2, 3):  # neighbours have half in common
        x = x + np.roll(x, 1, axis) + np.roll(x, 2, axis)
    signed, relu = Ways(1.0, 2.0), Ways(1.0, 2.0)
    signed.encode(shape, budget, x.ravel())
    relu.encode(shape, budget, np.maximum(x, 0).ravel())
    assert {way for way, _, _ in signed.asked} == {PLAIN, TRANSFORMED}
    assert {way for way, _, _ in relu.asked} == tried


def test_the_coding_gain_is_that_of_the_correlations() -> None:
    x = np.random.default_rng(0).standard_normal((64, 1, 64, 64))
    for column in range(1, 64):
        x[..., column] = 0.8 * x[..., column - 1] + 0.6 * x[..., column]
    assert coding_gain(x) == pytest.approx(1 / (1 - 0.8**2), rel=0.1)
    assert coding_gain(np.zeros_like(x)) == 1.0


def test_previews_are_small_and_get_their_share_of_the_bytes() -> None:
    ways = Ways(1.0, 2.0)
    ways.encode()
    previews = {way: (d, budget) for way, d, budget in ways.asked if d != SHAPE.d}
    assert set(previews) == {PLAIN, TRANSFORMED}
    for d, budget in previews.values():
        assert d <= SHAPE.d // 4
        assert BUDGET * d // SHAPE.d <= budget < BUDGET // 2  # and what a section has once


def test_few_samples_are_encoded_both_ways() -> None:
    shape = SectionShape(3 * SHAPE.sample, 4, 16, 16)
    ways = Ways(1.0, 0.1)
    assert ways.encode(shape) == TRANSFORMED
    assert ways.whole(shape) == {PLAIN, TRANSFORMED}


def test_a_rotation_that_takes_half_of_the_bytes_is_not_tried() -> None:
    ways = Ways(1.0, 0.1)
    assert ways.encode(budget=500) == PLAIN
    assert ways.asked == [(PLAIN, SHAPE.d, 500)]


@pytest.mark.parametrize("how", ["bpe=1.0", "error=0.05"])
def test_many_samples_are_coded_as_one_of_both_ways(how: str) -> None:
    x = np.random.default_rng(0).standard_normal((40, 4, 16, 16)).astype(np.float32)
    smooth = np.cumsum(np.cumsum(x, axis=2), axis=3)
    for given, way in ((x, "none"), (smooth, "dct")):
        auto, wanted = (cutlayer.codec(f"ems:{how},transform={t}").encode(given) for t in ("auto", way))
        assert auto == wanted
