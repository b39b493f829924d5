"""`transform=auto` tries both ways only where a preview leaves the choice open."""

from dataclasses import dataclass, field

import numpy as np
import pytest

import cutlayer
from cutlayer.codecs.entropy.rate_control import Encoded
from cutlayer.codecs.entropy.section_shape import SectionShape
from cutlayer.codecs.entropy.transform_choice import TransformChoice
from cutlayer.codecs.tensors import Tensor

SHAPE = SectionShape(1 << 18, 4, 16, 16)  # 256 samples
PLAIN, TRANSFORMED = b"plain", b"transformed"
BUDGET = 1 << 15


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

    def encode(self, shape: SectionShape = SHAPE, budget: int = BUDGET) -> bytes:
        choice = TransformChoice(self.elements, self.coefficients, self.error)
        return choice.encode(np.zeros(shape.d, np.float32), shape, budget)[0]

    def whole(self, shape: SectionShape = SHAPE) -> set[bytes]:
        """The ways in which the whole section was encoded."""
        return {way for way, d, _ in self.asked if d == shape.d}


@pytest.mark.parametrize(
    ("transformed", "tried", "chosen"),
    [
        (0.5, {TRANSFORMED}, TRANSFORMED),
        (0.95, {PLAIN, TRANSFORMED}, TRANSFORMED),
        (1.2, {PLAIN}, PLAIN),
        (None, {PLAIN}, PLAIN),
    ],
)
def test_the_whole_section_is_encoded_both_ways_only_if_the_preview_is_not_clear(
    transformed: float | None, tried: set[bytes], chosen: bytes
) -> None:
    ways = Ways(1.0, transformed)
    assert ways.encode() == chosen
    assert ways.whole() == tried


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
    assert ways.encode(budget=900) == PLAIN
    assert ways.asked == [(PLAIN, SHAPE.d, 900)]


@pytest.mark.parametrize("how", ["bpe=1.0", "error=0.05"])
def test_many_samples_are_coded_as_one_of_both_ways(how: str) -> None:
    x = np.random.default_rng(0).standard_normal((40, 4, 16, 16)).astype(np.float32)
    smooth = np.cumsum(np.cumsum(x, axis=2), axis=3)
    for given, way in ((x, "none"), (smooth, "dct")):
        auto, wanted = (cutlayer.codec(f"ems:{how},transform={t}").encode(given) for t in ("auto", way))
        assert auto == wanted
