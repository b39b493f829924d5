"""Image folders in ImageNet's layout and in the flat one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cutlayer.data import load, load_both, statistics
from cutlayer.errors import DataError

RED, GREEN, BLUE = (250, 0, 0), (0, 250, 0), (0, 0, 250)


def write(make, file: Path, colour=RED, size=(8, 8), kind: str = "JPEG") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(make.encoded(colour, size, kind))


@pytest.fixture
def imagenet(make, tmp_path: Path) -> Path:
    for i, (name, colour) in enumerate([("n01440764", RED), ("n01443537", BLUE)]):
        for j in range(3 + i):
            write(make, tmp_path / "train" / name / f"{name}_{j}.JPEG", colour, (20 + j, 30))
        write(make, tmp_path / "val" / name / "ILSVRC2012_val_1.JPEG", colour, (30, 16))
    return tmp_path


def test_imagenet_layout(imagenet: Path) -> None:
    train, test = load_both(imagenet, size=16)
    assert train.name == "imagenet"
    assert train.class_names == ("n01440764", "n01443537")
    assert train.labels.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert test.labels.tolist() == [0, 1]
    assert train.shape == (3, 16, 16)
    assert train.images[0, :, 8, 8].tolist() == pytest.approx(RED, abs=6)
    assert test.images[1, :, 8, 8].tolist() == pytest.approx(BLUE, abs=6)


def test_the_centre_is_kept(tmp_path: Path) -> None:
    from PIL import Image

    image = Image.new("RGB", (64, 16), RED)
    image.paste(GREEN, (24, 0, 40, 16))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        image.save(tmp_path / name / "x.png")
    picture = load(tmp_path, size=16).images[0]
    assert bool((picture[1] == 250).all())
    assert bool((picture[0] == 0).all())


def test_flat_layout_is_split_by_seed(make, tmp_path: Path) -> None:
    for name in ("ant", "bee"):
        for i in range(10):
            write(make, tmp_path / name / "deeper" / f"{i}.png", RED, kind="PNG")
    (tmp_path / "ant" / "notes.txt").write_text("not an image")
    (tmp_path / ".hidden").mkdir()
    train, test = load_both(tmp_path, test_fraction=0.2)
    assert torch.bincount(train.labels).tolist() == [8, 8]
    assert torch.bincount(test.labels).tolist() == [2, 2]
    assert train.class_names == ("ant", "bee")


def test_train_alone_has_a_test_part_held_out(make, imagenet: Path) -> None:
    for file in imagenet.glob("val/*/*"):
        file.unlink()
        file.parent.rmdir()
    (imagenet / "val").rmdir()
    train, test = load_both(imagenet, size=8, test_fraction=0.3)
    assert (len(train), len(test)) == (5, 2)


def test_damaged_image_is_named(imagenet: Path) -> None:
    bad = imagenet / "train" / "n01443537" / "n01443537_1.JPEG"
    whole = bad.read_bytes()
    for data in (whole[: len(whole) // 2], b"", b"not a JPEG"):
        bad.write_bytes(data)
        with pytest.raises(DataError, match=r"n01443537_1\.JPEG: cannot be decoded as an image"):
            load(imagenet, size=16)


def test_class_unknown_to_train_is_named(make, imagenet: Path) -> None:
    write(make, imagenet / "val" / "n99999999" / "x.JPEG")
    with pytest.raises(DataError, match="class 'n99999999' is not in"):
        load(imagenet, "test", size=8)


def test_validation_images_outside_class_folders(make, imagenet: Path) -> None:
    for file in imagenet.glob("val/*/*"):
        file.unlink()
        file.parent.rmdir()
    write(make, imagenet / "val" / "x.JPEG")
    with pytest.raises(DataError, match="no class folders; sort its images"):
        load(imagenet, "test", size=8)


def test_empty_split(imagenet: Path) -> None:
    for file in imagenet.glob("val/*/*"):
        file.unlink()
    with pytest.raises(DataError, match="val: the split is empty"):
        load(imagenet, "test", size=8)


def test_sixteen_bit_images_are_refused(tmp_path: Path) -> None:
    from PIL import Image

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.new("I;16", (4, 4)).save(tmp_path / name / "x.png")
    with pytest.raises(DataError, match="only 8-bit images"):
        load(tmp_path)


def test_real_imagenet_samples(real_data: Path) -> None:
    train = load(real_data / "imagenet-samples", size=64, limit=20)
    assert (train.name, train.classes, train.shape) == ("imagenet", 250, (3, 64, 64))
    assert len(train.labels.unique()) == 20


def test_images_are_decoded_as_they_are_needed(make, tmp_path: Path) -> None:
    for split in ("train", "val"):
        for name, colour in (("red", RED), ("blue", BLUE)):
            for i in range(3):
                write(make, tmp_path / split / name / f"{i}.png", colour, kind="PNG")
    memory, lazy = load(tmp_path), load(tmp_path, lazy=True)
    assert not hasattr(lazy, "images")
    assert lazy.form == memory.form
    indices = torch.tensor([5, 0, 3])
    for one, other in zip(memory.batch(indices), lazy.batch(indices), strict=True):
        assert torch.equal(one, other)
    assert statistics(lazy) == statistics(memory)
    assert torch.equal(lazy.select(torch.tensor([4])).batch(torch.tensor([0]))[0], memory.images[4:5])
    (tmp_path / "train" / "red" / "1.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"red.1.png: cannot be decoded"):
        lazy.batch(torch.tensor([4]))
