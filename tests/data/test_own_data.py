"""Data of a user's own: torch Datasets, sequences, tensors, collate functions; read as needed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset, TensorDataset

from cutlayer.data import ArrayDataset, Dataset, IndexedDataset, as_dataset, load, load_both, partition_data
from cutlayer.data.form import DataForm
from cutlayer.errors import DataError


class Squares(TorchDataset):  # type: ignore[type-arg]
    """Knows which samples it was asked for."""

    def __init__(self, count: int = 10) -> None:
        self.count = count
        self.asked: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> tuple[Any, Any]:
        self.asked.append(i)
        return torch.tensor([i, i * i], dtype=torch.float32), i % 3


def test_samples_are_asked_for_when_they_are_needed() -> None:
    source = Squares()
    data = as_dataset(source, classes=3)
    assert isinstance(data, IndexedDataset)
    assert source.asked == [0]  # its form
    inputs, targets = data.batch(torch.tensor([7, 2]))
    assert inputs.tolist() == [[7, 49], [2, 4]]
    assert targets.tolist() == [1, 2]
    assert source.asked == [0, 7, 2]
    partition_data("even", data, 2, seed=0)
    assert source.asked == [0, 7, 2]
    assert data.select(torch.tensor([3, 4])).batch(torch.tensor([1]))[0].tolist() == [[4, 16]]
    assert data.labels.tolist() == [i % 3 for i in range(10)]


def test_classes_are_counted_if_nobody_says() -> None:
    assert as_dataset(Squares()).form.outputs == 3
    named = Squares()
    named.classes = ["a", "b", "c", "d"]  # type: ignore[attr-defined]
    assert as_dataset(named).form.outputs == 4


@pytest.mark.parametrize(
    ("samples", "form"),
    [
        ([(np.ones(3, np.float32), 0.5)] * 4, ("tensor", ["float32"], "float32")),
        ([(np.ones(3), np.ones(2))] * 4, ("tensor", ["float32"], "float32")),
        ([(torch.ones(3).double(), torch.ones(2).double())] * 4, ("tensor", ["float64"], "float32")),
        ([({"ids": torch.ones(3).long(), "mask": torch.ones(3).bool()}, torch.ones(2).bool())] * 4,
         ("dict", ["int64", "bool"], "bool")),
        ([((torch.ones(2).half(), torch.ones(1, 2).to(torch.int32)), torch.ones(3, 3))] * 4,
         ("tuple", ["float16", "int32"], "float32")),
    ],
)  # fmt: skip
def test_inputs_of_any_dtype_and_number(samples: list[Any], form: tuple[Any, ...]) -> None:
    data = as_dataset(samples)
    found = data.form
    assert (found.container, [x.dtype for x in found.inputs], found.target.dtype) == form
    inputs, targets = data.batch(torch.tensor([1, 3, 0]))
    assert found.check(inputs, targets, "here") is None
    assert len(targets) == 3


def test_a_collate_function_makes_the_batch() -> None:
    words = ["ab", "abc", "a"]

    def pad(samples: list[str]) -> tuple[Any, Any]:
        rows = [[ord(c) - 96 for c in word] + [0] * (3 - len(word)) for word in samples]
        return torch.tensor(rows), torch.tensor([float(len(word)) for word in samples])

    data = as_dataset(words, collate=pad, tokens=27)
    inputs, targets = data.batch(torch.tensor([0, 2]))
    assert inputs.tolist() == [[1, 2, 0], [1, 0, 0]]
    assert targets.tolist() == [2, 1]


def test_tensors_are_a_whole_split() -> None:
    x, y = torch.rand(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])
    for given in ((x, y), TensorDataset(x, y)):
        data = as_dataset(given)
        assert isinstance(data, Dataset)
        assert data.classes == 3
    both = as_dataset(({"a": x, "b": y[:, None]}, x[:, 0].double()))
    assert isinstance(both, ArrayDataset)
    assert both.form.target.dtype == "float32"
    assert as_dataset(both) is both


class Stream(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        return iter([])


class Broken(Squares):
    def __getitem__(self, i: int) -> tuple[Any, Any]:
        if i == 4:
            raise OSError("the disk is gone")
        return super().__getitem__(i)


class Uneven(Squares):
    def __getitem__(self, i: int) -> tuple[Any, Any]:
        return torch.zeros(2 if i < 4 else 3), i % 3


@pytest.mark.parametrize(
    ("source", "settings", "said"),
    [
        (Stream(), {"classes": 2}, "no length and no samples by number; give a map-style"),
        ([], {"classes": 2}, "the split is empty"),
        ([torch.ones(3)], {"classes": 2}, r"must be \(inputs, target\)"),
        ([(torch.tensor(1.0), 0)], {"classes": 2}, r"make one number a sample \[N, 1\]"),
        ([([1.0, 2.0], 0)], {"classes": 2}, "a list of numbers counts as that many inputs"),
        ([(torch.ones(2), "word")], {"classes": 2}, "cannot be put together"),
        ([(torch.ones(2), torch.ones(2).half())], {}, "targets must be int64, bool or float32, not float16"),
        (Squares(), {"classes": 2}, "sample 2 holds an integer outside 0 to 1"),
        (Broken(), {"classes": 3}, r"sample 4 cannot be read \(OSError: the disk is gone\)"),
        ([(torch.ones(2), 0), (torch.tensor([1.0, torch.nan]), 0)], {}, "sample 1 holds NaN or infinity"),
        (Uneven(), {"classes": 3}, r"cannot be put together.*collate function"),
        (Squares(), {"classes": 3, "collate": lambda samples: samples[0]}, "for 1 samples|samples in front"),
    ],
)
def test_a_bad_sample_is_named(source: Any, settings: dict[str, Any], said: str) -> None:

    def read() -> None:
        data = as_dataset(source, **settings)
        data.batch(torch.arange(len(data)))

    with pytest.raises(DataError, match=said):
        read()


def test_a_batch_of_another_form_is_refused() -> None:
    data = as_dataset(Uneven(), classes=3)
    with pytest.raises(DataError, match=r"float32 \[3\], not float32 \[2\]"):
        data.batch(torch.tensor([5, 6]))


OWN = """
import torch

def torch_data():
    x = torch.rand(12, 4)
    return torch.utils.data.TensorDataset(x, x[:, 0]), [(row, row[0]) for row in x]

def uneven():
    x = torch.rand(12, 4)
    return [(row, row[0]) for row in x], [(row[:2], row[0]) for row in x]

def number():
    return 5
"""


def test_own_data_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_torch_data.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    train, test = load_both("own_torch_data:torch_data")
    assert train.form == test.form
    assert len(load("own_torch_data:torch_data", limit=5)) == 5
    with pytest.raises(DataError, match="train and test must have one form"):
        load("own_torch_data:uneven")
    with pytest.raises(DataError, match=r"must return \(train, test\)"):
        load("own_torch_data:number")


def test_partitions_by_class_need_classes() -> None:
    data = ArrayDataset(torch.rand(10, 2), torch.rand(10), name="houses")
    for spec in ("dirichlet:alpha=1", "shard:shards=2"):
        with pytest.raises(DataError, match=r"targets of houses are float32 \[\]; use even or contiguous"):
            partition_data(spec, data, 2, seed=0)
    assert [part.tolist() for part in partition_data("contiguous", data, 3, seed=0)] == [
        [0, 1, 2, 3], [4, 5, 6], [7, 8, 9],
    ]  # fmt: skip
    parts = partition_data("even", data, 3, seed=0)
    assert sorted(torch.cat(list(parts)).tolist()) == list(range(10))


def test_array_data_sets_are_checked() -> None:
    for settings, said in (
        ({"inputs": torch.rand(3, 2), "targets": torch.rand(4)}, r"have \[3, 4\] samples"),
        ({"inputs": torch.rand(0, 2), "targets": torch.rand(0)}, "the split is empty"),
        ({"inputs": torch.rand(3), "targets": torch.rand(3)}, r"make one number a sample \[N, 1\]"),
        ({"inputs": torch.rand(3, 2), "targets": torch.ones(3).long()}, "how many classes"),
        ({"inputs": torch.rand(3, 2), "targets": torch.ones(3).half()}, "not float16"),
    ):
        with pytest.raises(DataError, match=said):
            ArrayDataset(**settings)


def test_forms_say_how_many_outputs_a_model_needs() -> None:
    x = torch.rand(2, 3)
    assert DataForm.of(x, torch.ones(2).long(), classes=7).outputs == 7
    assert DataForm.of(x, torch.ones(2, 4).bool()).outputs == 4
    assert DataForm.of(x, torch.rand(2)).outputs == 1
    assert DataForm.of(x, torch.rand(2, 3, 5)).outputs == 15
