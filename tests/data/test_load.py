"""Finding data by name and by what a path holds."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch

import cutlayer.data
from cutlayer.data import load, load_both
from cutlayer.errors import DataError


def test_missing_path_says_what_is_accepted(tmp_path: Path) -> None:
    with pytest.raises(DataError) as raised:
        load(tmp_path / "nowhere")
    message = str(raised.value)
    for part in ("nowhere", "cifar-10-python.tar.gz", "train-*.parquet", "train/<class>/"):
        assert part in message


def test_known_name_without_data_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cifar100 is not under .*cifar-100-python\.tar\.gz"):
        load("cifar100", root=tmp_path)


def test_folder_without_data(tmp_path: Path) -> None:
    (tmp_path / "notes.rst").write_text("hello")
    with pytest.raises(DataError, match="no data set that can be read"):
        load(tmp_path)
    with pytest.raises(DataError, match="no data set that can be read"):
        load(tmp_path / "notes.rst")


@pytest.mark.parametrize(
    "settings",
    [
        {"split": "val"},
        {"channels": 2},
        {"test_fraction": 0},
        {"test_fraction": 1.0},
        {"size": 0},
        {"limit": 0},
        {"workers": 0},
    ],
)
def test_bad_settings(settings) -> None:
    with pytest.raises(DataError, match=f"{next(iter(settings))} must"):
        load("digits", **settings)


OWN = """
import torch
from cutlayer.data import Dataset

def part(n, width=5):
    return Dataset(torch.rand(n, width), torch.zeros(n, dtype=torch.int64), 2)

def dataset():
    return part(8), part(4)

def one(): return part(8)
def uneven(): return part(8), part(4, 6)
def failing(): raise RuntimeError("own trouble")
number = 5
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").write_text("")
    (tmp_path / "own_package" / "data.py").write_text(OWN)
    (tmp_path / "own_package" / "broken.py").write_text("import does_not_exist_anywhere")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in [name for name in sys.modules if name.startswith("own_package")]:
        del sys.modules[name]


@pytest.mark.usefixtures("own")
def test_own_data() -> None:
    train, test = load_both("own_package.data:dataset")
    assert (len(train), len(test)) == (8, 4)
    assert train.images.dtype == torch.float32


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("no_such_package:dataset", "no module 'no_such_package'"),
        ("own_package.nothing:dataset", r"no module 'own_package\.nothing'"),
        ("own_package.data:nothing", "has no 'nothing'. It has: "),
        ("own_package.data:number", "is a int, not a function"),
        ("own_package.data:one", r"must return \(train, test\)"),
        ("own_package.data:uneven", "they must agree"),
    ],
)
def test_own_data_that_does_not_fit(spec: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(spec)


@pytest.mark.usefixtures("own")
def test_errors_of_own_code_are_told() -> None:
    with pytest.raises(RuntimeError, match="own trouble"):
        load("own_package.data:failing")
    with pytest.raises(DataError, match="no module 'does_not_exist_anywhere'") as told:
        load("own_package.broken:dataset")
    assert isinstance(told.value.__cause__, ModuleNotFoundError)


def test_progress_ends_at_the_total(make, tmp_path: Path) -> None:
    file = make.write_parquet(
        tmp_path / "x.parquet", [make.encoded((i % 256, 0, 0)) for i in range(300)], [0] * 300
    )
    calls: list[tuple[int, int]] = []
    load(file, progress=lambda done, total: calls.append((done, total)), workers=2)
    assert calls[-1] == (270, 270)
    assert calls == sorted(calls)


def test_data_too_large_for_memory_suggest_the_cache(
    make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = make.write_parquet(tmp_path / "x.parquet", [make.encoded((1, 2, 3))] * 20, [0] * 20)
    monkeypatch.setattr("cutlayer.data.formats.assemble._memory", lambda: 100)
    with pytest.raises(DataError, match=r"18 images of 3x8x8 .* set cache_dir"):
        load(file)
    assert len(load(file, cache_dir=tmp_path / "cache")) == 18


def test_only_cifar_is_unpickled() -> None:
    for file in Path(cutlayer.data.__file__).parent.rglob("*.py"):
        if file.name != "cifar_pickle.py":
            assert not re.search(r"(import|from) [c_]?[pP]ickle|allow_pickle=True", file.read_text()), file


def test_a_kind_of_data_that_is_misspelt(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no module 'txet'.*Or did you mean text:book\.txt\?"):
        load("txet:book.txt", root=tmp_path)
