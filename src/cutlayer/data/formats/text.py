"""Text for language models: windows of characters or bytes, each with the ones that follow as targets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cutlayer.data.arrays import ArrayDataset, Rows
from cutlayer.data.formats.file_rows import FileRows
from cutlayer.data.load_options import LoadOptions
from cutlayer.errors import DataError

_BYTES = 256


class _Windows:
    """Consecutive windows of tokens in memory, as int64."""

    def __init__(self, tokens: Tensor, context: int) -> None:
        self._rows = tokens.view(-1, context)

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, indices: Tensor) -> Tensor:
        """See `Rows.take`."""
        return self._rows[indices].to(torch.int64)


def is_text(path: Path) -> bool:
    """Whether a path is a text file by its name."""
    return path.is_file() and path.suffix == ".txt"


def load_text(path: Path, options: LoadOptions) -> ArrayDataset:
    """Load one split: the last part of the text (a tenth, unless test_fraction says otherwise) is the test.

    A sample is `context` tokens, its target the `context` tokens that begin one later. Bytes are read from
    the file as they are needed; of characters, the whole text is kept, in one byte each if they are few.
    """
    if path.is_dir():
        found = sorted(path.glob("*.txt"))
        if len(found) != 1:
            raise DataError(f"{path}: {len(found)} .txt files; give the file itself")
        path = found[0]
    return _bytes(path, options) if options.tokens == "bytes" else _characters(path, options)


def _bytes(path: Path, options: LoadOptions) -> ArrayDataset:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    first, count = _span(path, size, options)
    rows = [FileRows(path, np.uint8, (options.context,), count, offset=first + shift) for shift in (0, 1)]
    return _dataset(path, rows[0], rows[1], _BYTES, None)


def _characters(path: Path, options: LoadOptions) -> ArrayDataset:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: byte {error.start} is no UTF-8; convert it, or take bytes: --set data.tokens=bytes"
        ) from error
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    vocabulary, tokens = np.unique(codes, return_inverse=True)
    first, count = _span(path, len(codes), options)
    # As few bytes as the vocabulary needs.
    small = tokens.astype(np.uint8 if len(vocabulary) <= _BYTES else np.int32)
    kept = torch.from_numpy(small)
    length = count * options.context
    windows = [_Windows(kept[first + shift : first + shift + length], options.context) for shift in (0, 1)]
    return _dataset(path, windows[0], windows[1], len(vocabulary), tuple(_shown(int(c)) for c in vocabulary))


def _dataset(
    path: Path, inputs: Rows, targets: Rows, vocabulary: int, names: tuple[str, ...] | None
) -> ArrayDataset:
    return ArrayDataset(
        inputs,
        targets,
        vocabulary,
        vocabulary,
        class_names=names,
        name=path.stem,
        where=lambda index: f"{path}: window {index}",
    )


def _span(path: Path, length: int, options: LoadOptions) -> tuple[int, int]:
    """Where a split begins, and how many windows it has; each needs one token behind it."""
    context = options.context
    held_out = max(context + 1, round(options.test_fraction * length))
    first, last = (0, length - held_out) if options.split == "train" else (length - held_out, length)
    count = (last - first - 1) // context
    if count < 1:
        raise DataError(
            f"{path}: {length} tokens are too few for a context of {context}, with a part for tests; "
            "give more text or a smaller context (--set data.context=32)"
        )
    return first, count


def _shown(code: int) -> str:
    """A character's name: itself, or its number where it cannot be seen."""
    character = chr(code)
    return character if character.isprintable() and not character.isspace() else f"U+{code:04X}"
