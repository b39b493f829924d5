"""Text: windows of characters or bytes, the last tenth for tests."""

from pathlib import Path

import pytest
import torch

from cutlayer.data import load, load_both
from cutlayer.errors import DataError

TEXT = "".join(chr(97 + (i * i) % 7) + ("\n" if i % 5 == 0 else "") for i in range(400))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.mark.parametrize("tokens", ["characters", "bytes"])
def test_windows_follow_each_other_and_targets_are_one_later(file: Path, tokens: str) -> None:
    train, test = load_both(f"text:{file}", context=16, tokens=tokens)
    inputs, targets = train.batch(torch.arange(len(train)))
    assert inputs.dtype == targets.dtype == torch.int64
    assert torch.equal(inputs.flatten()[1:], targets.flatten()[:-1])
    held_out = round(0.1 * len(TEXT))
    assert len(train) == (len(TEXT) - held_out - 1) // 16
    assert len(test) == (held_out - 1) // 16
    if tokens == "bytes":
        names: tuple[str, ...] = tuple(chr(i) for i in range(256))
        assert train.class_names is None
        assert train.form.outputs == 256
    else:
        assert train.class_names is not None
        assert train.class_names[0] == "U+000A"  # a name can be printed
        names = ("\n", *train.class_names[1:])
        assert train.form.outputs == len(set(TEXT)) == len(names)
    read = "".join(names[i] for i in inputs.flatten().tolist())
    assert read == TEXT[: len(read)]
    begun = "".join(names[i] for i in test.batch(torch.tensor([0]))[0].flatten().tolist())
    assert begun == TEXT[len(TEXT) - held_out :][:16]


def test_windows_are_taken_in_any_order_and_selected(file: Path) -> None:
    train = load(file, context=8)
    chosen = train.select(torch.tensor([5, 2]))
    assert torch.equal(chosen.batch(torch.tensor([1]))[0], train.batch(torch.tensor([2]))[0])
    assert chosen.form == train.form
    assert len(load(file, context=8, limit=3)) == 3


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    short, foreign = tmp_path / "short.txt", tmp_path / "foreign.txt"
    short.write_text("a few words")
    foreign.write_bytes(b"caf\xe9 " * 200)
    with pytest.raises(DataError, match=r"short.txt: 11 tokens are too few for a context of 128"):
        load(f"text:{short}")
    with pytest.raises(DataError, match=r"foreign.txt: byte 3 is no UTF-8; .*data.tokens=bytes"):
        load(foreign)
    assert load(foreign, tokens="bytes", context=16).form.outputs == 256
    with pytest.raises(DataError, match=r"nothing there. Expected a text"):
        load("text:nowhere.txt")
    with pytest.raises(DataError, match=r"2 .txt files"):
        load(f"text:{tmp_path}")
