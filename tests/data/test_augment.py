"""Augmentations: reproducible, and exactly what an image-by-image program does."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cutlayer.data import AUGMENTATIONS, Augment, Dataset, Statistics
from cutlayer.data.augment import crop_flip, resized_crop_flip, shift_flip
from cutlayer.data.known_datasets import KNOWN, measure
from cutlayer.errors import DataError
from cutlayer.seeding import generator

PLACE = {"seed": 1, "client": 2, "epoch": 3, "step": 4}


def images(count: int = 16, side: int = 32, channels: int = 3) -> Tensor:
    rng = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, channels, side, side), dtype=torch.uint8, generator=rng)


def dataset(name: str, side: int = 32) -> Dataset:
    pictures = images(side=side)
    return Dataset(pictures, torch.zeros(len(pictures), dtype=torch.int64), 10, name=name)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "imagenet", "digits", "custom"])
def test_same_place_same_bits(name: str) -> None:
    augment = Augment.of(dataset(name))
    batch = images()
    before = batch.clone()
    first = augment.train(batch, **PLACE)
    torch.manual_seed(99)  # the global generator has no say
    assert torch.equal(first, augment.train(batch, **PLACE))
    assert torch.equal(batch, before)
    assert first.dtype == torch.float32
    for key in PLACE:
        other = augment.train(batch, **{**PLACE, key: 77})
        assert torch.equal(first, other) == (augment.name == "none")


@pytest.mark.parametrize(
    ("augment", "padding", "mode"), [(crop_flip, 4, "constant"), (shift_flip, 2, "reflect")]
)
def test_crops_and_shifts_equal_a_loop_over_images(augment, padding, mode) -> None:
    batch = images(200)
    result = augment(batch, None, generator("x", 0))
    padded = torch.nn.functional.pad(batch.float(), (padding,) * 4, mode=mode).to(result.dtype)
    places = range(2 * padding + 1)
    found = set()
    for image, source in zip(result, padded, strict=True):
        matches = {
            (top, left, flip)
            for top in places
            for left in places
            for flip in (False, True)
            if torch.equal(image.flip(2) if flip else image, source[:, top : top + 32, left : left + 32])
        }
        assert len(matches) == 1
        found |= matches
    # All places and both directions occur.
    assert {top for top, _, _ in found} == {left for _, left, _ in found} == set(places)
    assert {flip for _, _, flip in found} == {False, True}


def test_resized_crop_is_a_part_of_the_image() -> None:
    # Each pixel holds its own coordinates, so the result tells where it came from.
    side = 64
    line = torch.arange(side, dtype=torch.float32)
    picture = torch.stack([line[:, None].expand(side, side), line[None, :].expand(side, side)])
    result = resized_crop_flip(picture.expand(500, -1, -1, -1), 32, generator("x", 0))
    assert tuple(result.shape) == (500, 2, 32, 32)
    rows, columns = result[:, 0], result[:, 1]
    assert torch.allclose(rows, rows[:, :, :1].expand_as(rows), atol=1e-3)
    assert torch.allclose(columns, columns[:, :1].expand_as(columns), atol=1e-3)
    assert float(result.min()) >= 0
    assert float(result.max()) <= side - 1
    # Between the outermost sample points lie 31 of 32 steps of the part.
    high = (rows[:, 24, 0] - rows[:, 7, 0]) * 32 / 17
    wide = (columns[:, 0, 24] - columns[:, 0, 7]) * 32 / 17
    assert 0.4 < float((wide < 0).float().mean()) < 0.6
    area, aspect = high * wide.abs() / side**2, wide.abs() / high
    assert float(area.min()) > 0.07
    assert float(area.max()) < 1.01
    assert 0.45 < float(area.mean()) < 0.58
    assert float(aspect.min()) > 0.70
    assert float(aspect.max()) < 1.43


def test_normalization_matches_its_formula() -> None:
    batch = images()
    statistics = KNOWN["cifar10"].statistics
    result = Augment("none", statistics).test(batch)
    mean, std = (torch.tensor(x).view(3, 1, 1) for x in (statistics.mean, statistics.std))
    assert torch.allclose(result, (batch.float() / 255 - mean) / std, atol=1e-5)


def test_unknown_data_are_normalized_by_their_own_statistics() -> None:
    train = dataset("custom")
    result = Augment.of(train).test(train.images)
    assert torch.allclose(result.mean((0, 2, 3)), torch.zeros(3), atol=1e-4)
    assert torch.allclose(result.std((0, 2, 3)), torch.ones(3), atol=1e-3)


def test_constant_channel_does_not_divide_by_zero() -> None:
    flat = Dataset(torch.full((3, 1, 2, 2), 51, dtype=torch.uint8), torch.zeros(3).long(), 1)
    assert measure(flat) == Statistics((0.2,), (1.0,))


def test_float_features_pass_through() -> None:
    train = Dataset(torch.rand(5, 7), torch.zeros(5).long(), 1)
    augment = Augment.of(train)
    assert torch.equal(augment.train(train.images, **PLACE), train.images)
    assert torch.equal(augment.test(train.images), train.images)
    with pytest.raises(DataError, match=r"needs images \[C, H, W\]"):
        Augment.of(train, "crop-flip")


def test_size_of_train_and_test() -> None:
    augment = Augment.of(dataset("imagenet", 64), size=48)
    batch = images(side=64)
    assert tuple(augment.train(batch, **PLACE).shape[2:]) == (48, 48)
    whole = Augment("none", augment.statistics).test(batch)
    assert torch.equal(augment.test(batch), whole[:, :, 8:56, 8:56])


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("rotate", None, "choose from auto, none, crop-flip, shift-flip, resized-crop-flip"),
        ("none", 64, "cannot be cut to 64x64"),
        ("crop-flip", 16, "'crop-flip' keeps the size 32x32"),
        ("shift-flip", 16, "'shift-flip' keeps the size 32x32"),
    ],
)
def test_bad_settings(name: str, size: int | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Augment.of(dataset("cifar10"), name, size)


def test_known_data_sets_name_existing_augmentations() -> None:
    assert {known.augmentation for known in KNOWN.values()} == set(AUGMENTATIONS) - {"shift-flip"}
