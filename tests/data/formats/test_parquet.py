"""Parquet as on the Hugging Face hub."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest
import torch

from cutlayer.data import load, load_both
from cutlayer.errors import DataError


def colours(make, count: int) -> list[bytes]:
    return [make.encoded((10 * i, 255 - i, i)) for i in range(count)]


def labels_of(count: int) -> list[int]:
    return [i % 3 for i in range(count)]


@pytest.mark.parametrize("image", ["img", "image"])
@pytest.mark.parametrize("label", ["label", "fine_label"])
@pytest.mark.parametrize("pattern", ["{}-{:05}-of-00002.parquet", "{}/{:04}.parquet"])
def test_shards_in_order(make, tmp_path: Path, image: str, label: str, pattern: str) -> None:
    pictures = colours(make, 12)
    for split, start, shards in (("train", 0, 2), ("test", 10, 1)):
        for shard in range(shards):
            own = slice(start + 5 * shard, start + 5 * (shard + 1))
            make.write_parquet(
                tmp_path / pattern.format(split, shard),
                pictures[own],
                labels_of(12)[own],
                image=image,
                label=label,
                names=["a", "b", "c"],
            )
    train, test = load_both(tmp_path)
    assert train.images[:, 0, 0, 0].tolist() == [10 * i for i in range(10)]
    assert train.images[:, 1, 3, 3].tolist() == [255 - i for i in range(10)]
    assert train.labels.tolist() == labels_of(10)
    assert test.images[:, 0, 0, 0].tolist() == [100, 110]
    assert train.class_names == test.class_names == ("a", "b", "c")


def test_one_file_has_a_test_part_held_out(make, tmp_path: Path) -> None:
    file = make.write_parquet(tmp_path / "all.parquet", colours(make, 20), labels_of(20))
    train, test = load_both(file, test_fraction=0.25)
    assert (len(train), len(test)) == (15, 5)
    reds = sorted(torch.cat([train.images, test.images])[:, 0, 0, 0].tolist())
    assert reds == [10 * i for i in range(20)]
    assert train.classes == test.classes == 3
    assert train.name == "all"
    other = load(file, "test", test_fraction=0.25, split_seed=1)
    assert other.images.tolist() != test.images.tolist()


def test_the_name_of_the_folder_itself_says_nothing(make, tmp_path: Path) -> None:
    folder = tmp_path / "test-data"
    make.write_parquet(folder / "some.parquet", colours(make, 10), labels_of(10))
    assert len(load(folder, "train")) == 9
    make.write_parquet(folder / "test.parquet", colours(make, 4), labels_of(4))
    assert (len(load(folder, "train")), len(load(folder, "test"))) == (10, 4)


@pytest.mark.parametrize("name", ["validation", "valid", "val"])
def test_unlabelled_test_gives_way_to_validation(make, tmp_path: Path, name: str) -> None:
    pictures = colours(make, 4)
    make.write_parquet(tmp_path / "train-0.parquet", pictures, [0, 1, 2, 0])
    make.write_parquet(tmp_path / "test-0.parquet", pictures, [-1, -1, -1, -1])
    with pytest.raises(DataError, match=r"test-0\.parquet: row 0 has label -1"):
        load(tmp_path, "test")
    make.write_parquet(tmp_path / f"{name}-0.parquet", pictures, [2, 1, 0, 0])
    assert load(tmp_path, "test").labels.tolist() == [2, 1, 0, 0]


def test_grey_images_have_one_channel_unless_asked(make, tmp_path: Path) -> None:
    file = make.write_parquet(tmp_path / "g.parquet", [make.encoded(i) for i in range(6)], [0] * 6)
    assert load(file).shape == (1, 8, 8)
    assert load(file, channels=3).shape == (3, 8, 8)


def test_limit_keeps_the_share_of_each_class(make, tmp_path: Path) -> None:
    file = make.write_parquet(tmp_path / "train-0.parquet", colours(make, 24), labels_of(24))
    make.write_parquet(tmp_path / "test-0.parquet", colours(make, 3), labels_of(3))
    assert torch.bincount(load(file.parent, limit=9).labels).tolist() == [3, 3, 3]
    assert len(load(file.parent, limit=999)) == 24


def test_recognized_by_its_class_names(make, tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    make.write_parquet(file, colours(make, 4), [0, 1, 2, 9], names=make.cifar10_names)
    assert load(file).name == "cifar10"
    make.write_parquet(file, colours(make, 4), [0, 1, 2, 0])
    with pytest.raises(DataError, match="3 classes, but cifar10 has 10"):
        load(f"cifar10:{file}")


def test_damaged_file_is_named(make, tmp_path: Path) -> None:
    file = make.write_parquet(tmp_path / "bad.parquet", colours(make, 9), labels_of(9))
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    with pytest.raises(DataError, match=r"bad\.parquet: cannot be read as Parquet"):
        load(file)
    file.write_bytes(b"")
    with pytest.raises(DataError, match=r"bad\.parquet: cannot be read as Parquet"):
        load(file)


def test_any_damage_gives_a_data_error_or_images(make, tmp_path: Path) -> None:
    file = make.write_parquet(tmp_path / "bad.parquet", colours(make, 9), labels_of(9))
    whole, rng = file.read_bytes(), random.Random(0)
    for _ in range(100):
        data = bytearray(whole)
        for _ in range(3):
            data[rng.randrange(len(data))] = rng.randrange(256)
        file.write_bytes(data)
        with contextlib.suppress(DataError):
            assert load(file, size=8).images.shape[1:] == (3, 8, 8)


def test_damaged_image_is_named_with_its_row(make, tmp_path: Path) -> None:
    pictures = colours(make, 9)
    pictures[7] = make.encoded((1, 2, 3), (512, 512), "JPEG")[:-400]
    file = make.write_parquet(tmp_path / "train-0.parquet", pictures, labels_of(9))
    make.write_parquet(tmp_path / "test-0.parquet", colours(make, 2), [0, 1])
    with pytest.raises(DataError, match=r"train-0\.parquet: row 7: cannot be decoded"):
        load(file.parent, size=8)
    pictures[7] = b"nonsense"
    make.write_parquet(file, pictures, labels_of(9))
    with pytest.raises(DataError, match=r"train-0\.parquet: row 7: cannot be decoded"):
        load(file.parent)
    pictures[7] = None
    make.write_parquet(file, pictures, labels_of(9))
    with pytest.raises(DataError, match=r"train-0\.parquet: row 7 holds no image bytes in 'img'"):
        load(file.parent)


def test_labels_that_do_not_fit(make, tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    make.write_parquet(file, colours(make, 4), [0, 1, 3, 0], names=["a", "b", "c"])
    with pytest.raises(DataError, match=r"x\.parquet: row 2 has label 3, outside 0\.\.2"):
        load(file)
    make.write_parquet(file, colours(make, 4), [0, 2**60, 3, 0])
    with pytest.raises(DataError, match=r"x\.parquet: row 1 has label 1152921504606846976"):
        load(file)
    make.write_parquet(file, colours(make, 4), [0, None, 3, 0])
    with pytest.raises(DataError, match=r"x\.parquet: row 1 has no label"):
        load(file)
    make.write_parquet(tmp_path / "f" / "train-0.parquet", colours(make, 4), [0, 1, 1, 0])
    make.write_parquet(tmp_path / "f" / "test-0.parquet", colours(make, 2), [0, 2])
    with pytest.raises(DataError, match=r"test-0\.parquet: row 1 has label 2, outside 0\.\.1"):
        load(tmp_path / "f", "test")


def test_wrong_columns_and_empty_files(make, tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    make.write_parquet(file, colours(make, 2), [0, 1], label="target")
    with pytest.raises(DataError, match="no column 'fine_label' or 'label'; it has img, target"):
        load(file)
    make.write_parquet(file, colours(make, 2), [0, 1], image="picture")
    with pytest.raises(DataError, match="no column 'img' or 'image'"):
        load(file)
    make.write_parquet(file, [], [])
    with pytest.raises(DataError, match="empty"):
        load(file)


def test_mixed_sizes_and_colours_need_a_setting(make, tmp_path: Path) -> None:
    pictures = colours(make, 30)
    pictures[4] = make.encoded((1, 2, 3), (20, 10))
    file = make.write_parquet(tmp_path / "x.parquet", pictures, labels_of(30))
    with pytest.raises(DataError, match="row 4: 20x10 among images of 8x8; give a size"):
        load_both(file)
    assert load(file, size=8).shape == (3, 8, 8)

    pictures = [make.encoded(i) for i in range(30)]
    pictures[4] = make.encoded((1, 2, 3))
    make.write_parquet(file, pictures, labels_of(30))
    with pytest.raises(DataError, match=r"row 4: a coloured image .* load with channels=3"):
        load_both(file)


def test_real_cifar(real_data: Path) -> None:
    train, test = load_both(real_data / "cifar10", limit=200)
    assert train.name == "cifar10"
    assert train.shape == (3, 32, 32)
    assert torch.bincount(train.labels).tolist() == [20] * 10
    assert 90 < float(test.images.float().mean()) < 150


def test_real_tiny_imagenet(real_data: Path) -> None:
    test = load(real_data / "tiny-imagenet-50", "test", limit=100)
    assert (test.name, test.classes, test.shape) == ("imagenet", 50, (3, 64, 64))
    assert torch.bincount(test.labels).tolist() == [2] * 50
