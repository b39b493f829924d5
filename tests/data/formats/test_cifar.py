"""CIFAR in its four official layouts, packed and extracted, whole and damaged."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cutlayer.data import load
from cutlayer.errors import DataError


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
@pytest.mark.parametrize("kind", ["python", "binary"])
@pytest.mark.parametrize("packed", [True, False])
def test_official_layouts(cifar, name: str, kind: str, packed: bool) -> None:
    files = cifar.files(name, kind)
    path = cifar.archive(files) if packed else cifar.extracted(files)
    classes = 10 if name == "cifar10" else 100
    numbers = range(1, 6) if classes == 10 else [1]

    train, test = load(path, "train"), load(path, "test")

    assert train.name == test.name == name
    assert train.classes == test.classes == classes
    assert train.class_names is not None
    assert train.class_names[0] == ("airplane" if classes == 10 else "apple")
    assert train.labels.tolist() == [x for i in numbers for x in cifar.labels(i, classes)]
    pixels = np.concatenate([cifar.pixels[i] for i in numbers]).reshape(-1, 3, 32, 32)
    assert torch.equal(train.images, torch.from_numpy(pixels))
    assert test.labels.tolist() == cifar.labels(0, classes)
    assert torch.equal(test.images.flatten(), torch.from_numpy(cifar.pixels[0].flatten()))


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_written_again_by_python_3(cifar, make, name: str) -> None:
    path = cifar.archive(cifar.files(name, "python", make.python3_pickle))
    again = load(path)
    assert torch.equal(again.images[0].flatten(), torch.from_numpy(cifar.pixels[1][0]))
    assert again.class_names is not None


def test_found_under_the_folder_that_holds_it(cifar, tmp_path) -> None:
    cifar.extracted(cifar.files("cifar100", "python"), "cifar-100-python")
    assert load(tmp_path).name == "cifar100"
    assert load("cifar100", root=tmp_path).name == "cifar100"
    cifar.archive(cifar.files("cifar10", "binary"), "cifar-10-binary.tar.gz")
    assert load("cifar10", root=tmp_path).name == "cifar10"


def test_name_and_content_must_agree(cifar) -> None:
    path = cifar.archive(cifar.files("cifar100", "binary"))
    with pytest.raises(DataError, match="100 classes, but cifar10 has 10"):
        load(f"cifar10:{path}")


def test_missing_batch_is_named(cifar) -> None:
    files = cifar.files("cifar10", "python")
    del files["data_batch_3"]
    with pytest.raises(DataError, match="data_batch_3 missing"):
        load(cifar.extracted(files))


def test_archive_cut_short_is_named(cifar) -> None:
    path = cifar.archive(cifar.files("cifar10", "binary"))
    path.write_bytes(path.read_bytes()[:20000])
    with pytest.raises(DataError, match=r"cifar\.tar\.gz: cannot be read"):
        load(path)


def test_archive_with_a_damaged_byte_is_named(cifar) -> None:
    path = cifar.archive(cifar.files("cifar10", "binary"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"cifar\.tar\.gz"):
        load(path, "test")


def test_not_an_archive_at_all(tmp_path) -> None:
    path = tmp_path / "cifar-10-python.tar.gz"
    path.write_bytes(b"<html>404</html>")
    with pytest.raises(DataError, match="damaged or incomplete"):
        load(path)


def test_record_cut_short_is_named(cifar) -> None:
    files = cifar.files("cifar10", "binary")
    files["data_batch_2.bin"] = files["data_batch_2.bin"][:-5]
    with pytest.raises(DataError, match=r"data_batch_2\.bin: record 3 is cut short"):
        load(cifar.extracted(files))


@pytest.mark.parametrize("kind", ["python", "binary"])
def test_label_out_of_range_names_the_record(cifar, make, kind: str) -> None:
    files = cifar.files("cifar10", kind)
    if kind == "binary":
        data = bytearray(files["test_batch.bin"])
        data[2 * 3073] = 10
        files["test_batch.bin"] = bytes(data)
    else:
        table = {"data": cifar.pixels[0], "labels": [1, 2, 10, 3]}
        files["test_batch"] = make.python2_pickle(table)
    with pytest.raises(DataError, match=r"test_batch.*: record 2 has label 10, outside 0\.\.9"):
        load(cifar.extracted(files), "test")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"labels": [1]}, "expected the entries 'data' and 'labels', found labels"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [1]}, "expected .* n labels"),
        ({"data": np.zeros((1, 300), np.uint8), "labels": [1]}, "expected .* n labels"),
        (
            {"data": np.zeros((1, 3072), np.uint8), "labels": ["a"]},
            "record 0 has a label that is no",
        ),
        ({"data": np.zeros((1, 3072), np.uint8), "labels": [2**70]}, "record 0 has a label"),
    ],
)
def test_wrong_content_is_named(cifar, make, table, message: str) -> None:
    files = {**cifar.files("cifar10", "python"), "test_batch": make.python3_pickle(table)}
    with pytest.raises(DataError, match=f"test_batch: .*{message}"):
        load(cifar.extracted(files), "test")


@pytest.mark.parametrize("kind", ["python", "binary"])
def test_empty_split(cifar, make, kind: str) -> None:
    files = cifar.files("cifar100", kind)
    empty = {"data": np.zeros((0, 3072), np.uint8), "fine_labels": []}
    file = "test" if kind == "python" else "test.bin"
    files[file] = make.python3_pickle(empty) if kind == "python" else b""
    with pytest.raises(DataError, match="empty"):
        load(cifar.extracted(files), "test")
