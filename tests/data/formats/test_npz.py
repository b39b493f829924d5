"""Arrays of NumPy: in memory or read as needed, with the same batches; nothing is unpickled."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from cutlayer.data import ArrayDataset, Dataset, Sampler, load, load_both
from cutlayer.errors import DataError

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (30, 3, 6, 6), dtype=np.uint8)
LABELS = np.arange(30, dtype=np.int32) % 4


def test_images_and_labels_are_a_plain_data_set(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x_train=IMAGES, y_train=LABELS, x_test=IMAGES[:5], y_test=LABELS[:5])
    train, test = load_both(tmp_path / "a.npz")
    assert isinstance(train, Dataset)
    assert torch.equal(train.images, torch.from_numpy(IMAGES))
    assert train.labels.tolist() == LABELS.tolist()
    assert (len(test), train.classes) == (5, 4)


@pytest.mark.parametrize("compressed", [False, True])
def test_lazy_rows_are_those_in_memory(tmp_path: Path, compressed: bool) -> None:
    save = np.savez_compressed if compressed else np.savez
    masks = RNG.integers(0, 3, (30, 6, 6), dtype=np.uint8)
    save(tmp_path / "a.npz", images=IMAGES.astype(np.float64) / 7, masks=masks)
    memory, lazy = load(tmp_path / "a.npz"), load(tmp_path / "a.npz", lazy=True)
    indices = torch.tensor([4, 0, 11, 4])
    for one, other in zip(memory.batch(indices), lazy.batch(indices), strict=True):
        assert torch.equal(one, other)
    assert memory.form == lazy.form
    assert lazy.form.inputs[0].dtype == "float32"
    assert (lazy.form.target.shape, lazy.form.target.values) == ((6, 6), 3)
    chosen = lazy.select(torch.tensor([7, 3]))
    assert torch.equal(chosen.batch(torch.tensor([1]))[1], memory.batch(torch.tensor([3]))[1])


def test_a_folder_of_npy_and_several_inputs(tmp_path: Path) -> None:
    for name, array in (
        ("x_train", IMAGES[:, 0]),
        ("y_train", LABELS),
        ("x_test", IMAGES[:4, 0]),
        ("y_test", LABELS[:4]),
    ):
        np.save(tmp_path / f"{name}.npy", array)
    train = load(tmp_path, lazy=True)
    assert isinstance(train, ArrayDataset)
    assert train.shape == (1, 6, 6)  # grey images get their channel
    tokens = RNG.integers(0, 9, (30, 5))
    several = {"x/ids": tokens, "x/mask": tokens > 2, "y": tokens[:, 0] * 0.5}
    np.savez(tmp_path / "b.npz", **several)
    inputs, targets = load(tmp_path / "b.npz").batch(torch.tensor([0]))
    assert isinstance(inputs, dict)
    assert inputs["ids"].dtype == torch.int64
    assert inputs["mask"].dtype == torch.bool
    assert targets.dtype == torch.float32


def test_a_bad_row_is_named_when_it_is_read(tmp_path: Path) -> None:
    x = np.ones((20, 3), np.float32)
    x[17, 1] = np.nan
    np.savez(tmp_path / "a.npz", x_train=x, y_train=np.ones(20, np.float32), x_test=x[:2], y_test=np.ones(2))
    for lazy in (True, False):
        train = load(tmp_path / "a.npz", lazy=lazy)
        with pytest.raises(DataError, match=r"a.npz: row 17 holds NaN or infinity; correct it"):
            train.batch(torch.tensor([2, 17]))
    # Of class numbers, all rows are looked at when the file is opened.
    np.savez(tmp_path / "a.npz", x=x, y=np.ones(20, np.int64))
    with pytest.raises(DataError, match=r"a.npz: row 17 holds NaN or infinity; correct it"):
        load(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", x=np.ones((4, 2)), y=np.array([[0, 1], [1, 2], [0, 255], [0, 0]]))
    train = load(tmp_path / "a.npz", classes=3, test_fraction=0.5)
    whole = torch.arange(len(train))
    test = load(tmp_path / "a.npz", "test", classes=3, test_fraction=0.5)
    rows = torch.cat([train.targets, test.targets])
    bad = train if int(train.targets.max()) == 255 else test
    assert int(rows.max()) == 255
    with pytest.raises(DataError, match=r"a.npz: row 2 holds an integer outside 0 to 2"):
        bad.batch(whole)
    ignoring = load(tmp_path / "a.npz", classes=3, ignore=255, test_fraction=0.5)
    assert len(ignoring.batch(whole)[1]) == len(whole)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"a": IMAGES}, "no inputs and targets; it has a. Name them x and y"),
        ({"x": IMAGES, "y": LABELS[:4]}, "x has 30 rows and y 4; each row needs a target"),
        ({"x": np.ones((4, 2)), "y": np.array([0, -1, 0, 0])}, "y has negative integers"),
        ({"x": np.array(["a", "b"]), "y": LABELS[:2]}, "x holds <U1; expected numbers"),
        ({"x": np.array([{}, {}]), "y": LABELS[:2]}, "Nothing is unpickled"),
        ({"x": IMAGES.transpose(0, 2, 3, 1), "y": LABELS}, r"transpose them to \[C, H, W\]"),
        ({"x": np.float32(3), "y": LABELS}, r"must be \[N, ...\]"),
    ],
)
def test_arrays_that_cannot_be(tmp_path: Path, arrays: dict[str, np.ndarray], said: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=said):
        load(tmp_path / "a.npz")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=IMAGES, y=LABELS)
    data = (tmp_path / "a.npz").read_bytes()
    for cut in (0, 10, len(data) // 2, len(data) - 5):
        (tmp_path / "b.npz").write_bytes(data[:cut])
        with pytest.raises(DataError, match=r"b\.npz"):
            load(tmp_path / "b.npz", lazy=True)


def resident() -> int:
    """Bytes of memory that this process has now, pages of mapped files included."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("kind", ["npz", "text"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, kind: str) -> None:
    """A file of 64 MB is read once, in random order, and leaves a few megabytes behind at most."""
    x = np.zeros((4096, 4096), np.float32)
    if kind == "npz":
        y = np.zeros(len(x), np.float32)
        np.savez(tmp_path / "large.npz", x_train=x, y_train=y, x_test=x[:2], y_test=y[:2])
        source = str(tmp_path / "large.npz")
    else:
        (tmp_path / "large.txt").write_bytes(x.tobytes())
        source = f"text:{tmp_path / 'large.txt'}"
    del x
    train = load(source, lazy=True, tokens="bytes", context=16384)
    sampler = Sampler(torch.arange(len(train)), 32, seed=0, client=0)
    train.batch(sampler.batch(0, 0))
    before, read = resident(), 0
    for step in range(len(sampler)):
        read += train.batch(sampler.batch(0, step))[0].numel()
    assert read >= 15 << 20
    assert resident() - before < 24 << 20


def test_rows_that_vanish_are_named(tmp_path: Path) -> None:
    np.save(tmp_path / "x_train.npy", IMAGES)
    np.save(tmp_path / "y_train.npy", LABELS)
    train = load(tmp_path, lazy=True)
    whole = (tmp_path / "x_train.npy").read_bytes()
    (tmp_path / "x_train.npy").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"row 29 is cut short; the file has changed"):
        train.batch(torch.tensor([len(train) - 1]))
    (tmp_path / "x_train.npy").unlink()
    with pytest.raises(DataError, match="cannot be read any more"):
        train.batch(torch.tensor([0]))
