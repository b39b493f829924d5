"""Tables: features and targets from columns, standardised by the training part; errors name the cell."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from cutlayer.data import Augment, load, load_both
from cutlayer.errors import DataError

COLUMNS = {
    "rooms": [3, 4, 2, 5] * 10,
    "area": [70.5, 90.0, 40.25, 120.0] * 10,
    "price": [7.0, 9.5, 4.0, 12.5] * 10,
}


def write(path: Path, columns: dict[str, list[Any]]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    else:
        mark = "\t" if path.suffix == ".tsv" else ","
        lines = [
            mark.join(columns),
            *(mark.join(map(str, row)) for row in zip(*columns.values(), strict=True)),
        ]
        path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet"])
def test_numbers_are_regression(tmp_path: Path, suffix: str) -> None:
    file = write(tmp_path / f"houses.{suffix}", COLUMNS)
    train, test = load_both(file, target=("price",))
    assert (len(train), len(test)) == (36, 4)
    assert train.shape == (2,)
    assert train.form.target.dtype == "float32"
    inputs, targets = train.batch(torch.arange(36))
    row = {7.0: [3, 70.5], 9.5: [4, 90.0], 4.0: [2, 40.25], 12.5: [5, 120.0]}
    assert inputs.tolist() == [row[y] for y in targets.tolist()]
    # Standardised with what the training part has.
    scaled = Augment.of(train).test(inputs)
    assert scaled.mean(0).tolist() == pytest.approx([0, 0], abs=1e-6)
    assert scaled.std(0, unbiased=False).tolist() == pytest.approx([1, 1], rel=1e-6)
    assert train.statistics == test.statistics
    assert train.statistics.mean == pytest.approx(inputs.double().mean(0).tolist())
    only = load(file, target=("price", "area"), features=("rooms",))
    assert (only.shape, only.form.target.shape) == ((1,), (2,))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_large_table_is_read_as_needed(tmp_path: Path, suffix: str) -> None:
    count = 10_000
    columns = {
        "a": [i % 97 / 7 for i in range(count)],
        "b": [i * i % 101 for i in range(count)],
        "y": [0.5 * i for i in range(count)],
    }
    folder = tmp_path / "room"
    file = write(tmp_path / f"large.{suffix}", columns)
    for split in ("train", "test"):
        whole = load(file, split, target=("y",))
        lazy = load(file, split, target=("y",), lazy=True, cache_dir=folder)
        chosen = torch.tensor([5, 0, len(whole) - 1])
        assert all(torch.equal(a, b) for a, b in zip(whole.batch(chosen), lazy.batch(chosen), strict=True))
        assert lazy.statistics.mean == pytest.approx(whole.statistics.mean)
        assert lazy.statistics.std == pytest.approx(whole.statistics.std)
        assert [f.stat().st_size for f in folder.iterdir()] == [4 * 2 * count]
        del lazy
        assert not list(folder.iterdir()), "the file goes with the data set"
    columns["b"][9_000] = float("nan")
    write(file, columns)
    with pytest.raises(DataError, match=rf"large.{suffix}: row 9001, column 'b': is nan"):
        load(file, target=("y",), lazy=True, cache_dir=folder)
    assert not list(folder.iterdir())
    with pytest.raises(DataError, match="rows of a large table cannot be written there"):
        load(file, target=("y",), lazy=True, cache_dir=file)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_words_are_classes(tmp_path: Path, suffix: str) -> None:
    columns = {"x": [0.5, 1.5, 2.5, 3.5] * 10, "kind": ["red", "blue", "red", "green"] * 10}
    train, test = load_both(write(tmp_path / f"k.{suffix}", columns), target=("kind",))
    assert train.class_names == ("blue", "green", "red")
    assert train.labels is not None
    assert torch.bincount(train.labels).tolist() == [9, 9, 18]
    assert test.class_names == train.class_names


def test_whole_numbers_are_classes_or_bits_where_the_task_says_so(tmp_path: Path) -> None:
    columns = {"x": list(range(40)), "a": [0, 1] * 20, "b": [1, 1, 0, 2] * 10}
    file = write(tmp_path / "n.csv", columns)
    assert load(file, target=("b",)).form.target.dtype == "float32"
    classed = load(file, target=("b",), target_kind="classes")
    assert classed.form.outputs == 3
    bits = load(file, target=("a",), features=("x",), target_kind="bits")
    assert (bits.form.target.dtype, bits.form.target.shape) == ("bool", (1,))
    with pytest.raises(DataError, match=r"row 4, column 'b': 2 is no 0 or 1"):
        load(file, target=("a", "b"), target_kind="bits")


def test_a_test_part_of_its_own(tmp_path: Path) -> None:
    write(tmp_path / "train.csv", {"x": [1.0, 2.0, 3.0], "kind": ["a", "b", "a"]})
    write(tmp_path / "test.csv", {"x": [9.0], "kind": ["b"]})
    train, test = load_both(tmp_path, target=("kind",))
    assert test.batch(torch.tensor([0]))[1].tolist() == [1]
    assert train.statistics.mean == test.statistics.mean == (2.0,)
    write(tmp_path / "test.csv", {"x": [9.0], "kind": ["c"]})
    with pytest.raises(DataError, match=r"test.csv: row 1, column 'kind': 'c' is no class of the train part"):
        load(tmp_path, "test", target=("kind",))


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("", r"row 3, column 'area': is missing; fill it in"),
        ("large", r"row 3, column 'area': 'large' is no number; .*one-hot"),
        ("nan", r"row 3, column 'area': is nan"),
        ("inf", r"row 3, column 'area': is inf"),
        ("1,2", r"row 3 has 4 cells, the header 3"),
    ],
)
def test_a_bad_cell_is_named(tmp_path: Path, cell: str, said: str) -> None:
    columns = {**COLUMNS, "area": [*COLUMNS["area"][:2], cell, *COLUMNS["area"][3:]]}
    file = write(tmp_path / "bad.csv", columns)
    with pytest.raises(DataError, match=f"bad.csv: {said}"):
        load(file, target=("price",))


def test_a_bad_cell_of_the_target_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "bad.csv", {"x": [1.0] * 4, "y": [1.0, 2.0, "", 3.0]})
    with pytest.raises(DataError, match=r"bad.csv: row 3, column 'y': is missing"):
        load(file, target=("y",))
    file = write(tmp_path / "bad.csv", {"x": [1.0] * 4, "y": ["a", "b", "", "c"]})
    with pytest.raises(DataError, match=r"bad.csv: row 3, column 'y': is missing"):
        load(file, target=("y",))


def test_a_bad_cell_of_parquet_is_named(tmp_path: Path) -> None:
    file = tmp_path / "bad.parquet"
    pq.write_table(pa.table({"x": pa.array([1.0, None, 2.0]), "y": [1.0, 2.0, 3.0]}), file)
    with pytest.raises(DataError, match=r"bad.parquet: row 2, column 'x': is missing"):
        load(file, target=("y",))
    pq.write_table(pa.table({"x": ["a", "b", "c"], "y": [1.0, 2.0, 3.0]}), file)
    with pytest.raises(DataError, match=r"bad.parquet: row 1, column 'x': holds string, not numbers"):
        load(file, target=("y",))
    pq.write_table(pa.table({"x": [1.0, np.nan], "y": [1.0, 2.0]}), file)
    with pytest.raises(DataError, match=r"bad.parquet: row 2, column 'x': is nan"):
        load(file, target=("y",))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, r"which column is the target\? It has rooms, area, price"),
        ({"target": ("cost",)}, "no column 'cost'; it has rooms, area, price"),
        ({"target": ("price",), "features": ("price",)}, "column 'price' is feature and target"),
    ],
)
def test_columns_that_cannot_be(tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        load(write(tmp_path / "houses.csv", COLUMNS), **settings)


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    for text, said in (
        ("", "is empty"),
        ("a,a\n1,2\n", "two columns are called 'a'"),
        ("a,b\n", "has no rows"),
    ):
        (tmp_path / "x.csv").write_text(text)
        with pytest.raises(DataError, match=said):
            load(tmp_path / "x.csv", target=("a",))
