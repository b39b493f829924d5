"""Decoded images on disk: complete or absent, and never stale."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cutlayer.data import load
from cutlayer.data.formats import decode as decode_module
from cutlayer.errors import DataError, FileError


@pytest.fixture
def source(make, tmp_path: Path) -> Path:
    for name in ("a", "b"):
        for i in range(5):
            file = tmp_path / "images" / name / f"{i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(make.encoded((i, 10, 20)))
    return tmp_path / "images"


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The records that were decoded, as they are."""
    names: list[str] = []
    original = decode_module.decode_image

    def counting(row, source, where, size) -> None:
        names.append(where)
        original(row, source, where, size)

    monkeypatch.setattr(decode_module, "decode_image", counting)
    return names


def test_second_load_decodes_nothing(source: Path, tmp_path: Path, decoded: list[str]) -> None:
    plain = load(source)
    cache = tmp_path / "cache"
    first = load(source, cache_dir=cache)
    assert len(decoded) == 18
    second = load(source, cache_dir=cache)
    assert len(decoded) == 18
    assert torch.equal(plain.images, first.images)
    assert torch.equal(first.images, second.images)
    (file,) = cache.iterdir()
    assert torch.equal(load_file(file)["images"], plain.images)


def test_changes_to_cached_images_stay_in_memory(source: Path, tmp_path: Path) -> None:
    first = load(source, cache_dir=tmp_path / "cache")
    before = first.images.clone()
    first.images.zero_()
    assert torch.equal(load(source, cache_dir=tmp_path / "cache").images, before)


def test_every_setting_has_its_own_file(source: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for settings in ({}, {"split": "test"}, {"size": 4}, {"split_seed": 1}, {"limit": 3}):
        load(source, cache_dir=cache, **settings)
    assert len(list(cache.iterdir())) == 5


def test_changed_source_is_decoded_again(make, source: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    load(source, cache_dir=cache)
    for file in source.glob("*/*.png"):
        changed = file.stat().st_mtime_ns + 10**9
        file.write_bytes(make.encoded((99, 10, 20)))
        os.utime(file, ns=(changed, changed))
    assert load(source, cache_dir=cache).images[:, 0, 0, 0].tolist() == [99] * 9


def test_damaged_cache_is_made_again(source: Path, tmp_path: Path) -> None:
    good = load(source, cache_dir=tmp_path / "cache").images.clone()
    (file,) = (tmp_path / "cache").iterdir()
    file.write_bytes(file.read_bytes()[:-7])
    assert torch.equal(load(source, cache_dir=tmp_path / "cache").images, good)


def test_failure_leaves_nothing_behind(make, source: Path, tmp_path: Path) -> None:
    for file in source.glob("*/*.png"):
        # Opens well, and breaks only when decoded.
        file.write_bytes(make.encoded((1, 2, 3), (512, 512), "JPEG")[:-400])
    with pytest.raises(DataError, match="cannot be decoded"):
        load(source, cache_dir=tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


def test_unusable_cache_folder_is_named(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FileError, match="file: the image cache cannot be written"):
        load(source, cache_dir=tmp_path / "file")
