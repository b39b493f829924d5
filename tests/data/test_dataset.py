"""A data set checks itself once, so that nothing later has to."""

from __future__ import annotations

import pytest
import torch

from cutlayer.data import Dataset
from cutlayer.errors import DataError

IMAGES = torch.zeros(4, 3, 8, 8, dtype=torch.uint8)
LABELS = torch.tensor([0, 1, 2, 1])


def test_holds_images_and_selects() -> None:
    data = Dataset(IMAGES, LABELS, 3, ("a", "b", "c"))
    assert len(data) == 4
    assert data.shape == (3, 8, 8)
    part = data.select(torch.tensor([2, 0]))
    assert part.labels.tolist() == [2, 0]
    assert part.class_names == ("a", "b", "c")


def test_float_features_of_any_shape_pass_through() -> None:
    features = torch.rand(4, 20)
    assert Dataset(features, LABELS, 3).images is features


@pytest.mark.parametrize(
    ("images", "labels", "classes", "message"),
    [
        (IMAGES[0], LABELS, 3, r"must be \[N, C, H, W\]"),
        (IMAGES.double(), LABELS, 3, "not torch.float64"),
        (torch.zeros(4), LABELS, 3, "not torch.float32"),
        (IMAGES, LABELS.int(), 3, r"convert class numbers with \.long"),
        (IMAGES, LABELS[:3], 3, "4 inputs but 3 targets"),
        (IMAGES[:0], LABELS[:0], 3, "the split is empty"),
        (IMAGES[:, :, :0], LABELS, 3, "empty"),
        (IMAGES, LABELS, 2, r"sample 2 has label 2, outside 0\.\.1 \(1 such"),
        (IMAGES, LABELS - 1, 3, "sample 0 has label -1"),
        (IMAGES, LABELS, 0, "at least 1"),
        (torch.tensor([[0.0], [1.0], [float("nan")], [0.0]]), LABELS, 3, "sample 2 holds NaN"),
    ],
)
def test_refuses_what_does_not_fit(images, labels, classes: int, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Dataset(images, labels, classes)


def test_class_names_must_be_as_many_as_classes() -> None:
    with pytest.raises(DataError, match="2 class names for 3 classes"):
        Dataset(IMAGES, LABELS, 3, ("a", "b"))
