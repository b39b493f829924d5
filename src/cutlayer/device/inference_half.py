"""A client's half for predictions, as `cutlayer export RUN --part client --format onnx` writes it."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cutlayer.codecs import Codec, decode
from cutlayer.codecs.frame import DEFAULT_LIMIT
from cutlayer.codecs.registry import codec_of
from cutlayer.device import data_form
from cutlayer.device.data_form import DataForm
from cutlayer.device.sessions import Session, read_file
from cutlayer.errors import CutlayerError, FileError, MessageError

HOW = "cutlayer export RUN --part client --format onnx"
#: The metadata of a file: what it is, and the tail of a U-shape.
ABOUT, TAIL = "cutlayer", "cutlayer.tail"
FORMAT = 1
INPUT, SMASHED, FEATURES, LOGITS = "images", "smashed", "features", "logits"
_MOST_ELEMENTS = 1 << 28


class OnnxHalf:
    """The head of a trained model (and its tail, in a U-shape), what samples look like, and the codec.

    Takes samples as they are stored, uint8 images or features, as arrays; gives float32 arrays.
    """

    classed = True

    def __init__(self, data: bytes, where: str, threads: int = 1) -> None:
        """From the bytes of a file, which may come from anywhere; `where` names it in errors."""
        self._head = Session(data, where, HOW, threads)
        metadata = self._head.metadata
        try:
            about = about_half(metadata, "inference")
            self.data_spec = DataForm.parse(about["data"])
            self.digest = _digest(about["digest"])
            self.shape = data_form.whole_numbers(about["smashed"], 1, _MOST_ELEMENTS, most=8)
            if math.prod(self.shape) > _MOST_ELEMENTS:
                raise ValueError(f"smashed data cannot have the shape {list(self.shape)}")
            self.quantized = data_form.flag(about["quantized"])
            self.up: Codec = codec_of(data_form.text(about["codec"])).deterministic()
            tail = base64.b64decode(metadata[TAIL], validate=True) if TAIL in metadata else None
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            if isinstance(error, CutlayerError):  # a codec of its own
                raise FileError(f"{where}: {error}") from error
            raise FileError(
                f"{where}: is not the client's half of a run ({_short(error)}); make it with: {HOW}"
            ) from error
        sample = (self.data_spec.shape, self.data_spec.dtype)
        _expect(self._head, {INPUT: sample}, {SMASHED: (self.shape, np.dtype(np.float32))})
        self._tail = None if tail is None else Session(tail, f"{where} (tail)", HOW, threads)
        if self._tail is not None:
            classes = ((self.data_spec.classes,), np.dtype(np.float32))
            _expect(self._tail, {FEATURES: None}, {LOGITS: classes})

    @staticmethod
    def load(path: str | Path, threads: int = 1) -> OnnxHalf:
        """From a file."""
        return OnnxHalf(read_file(Path(path), HOW), str(path), threads)

    @property
    def u_shaped(self) -> bool:
        """Whether the server's answer goes through a tail."""
        return self._tail is not None

    def smash(self, images: Any) -> Any:
        """The smashed data of samples as they are stored."""
        batch = self.data_spec.check(images)
        (found,) = self._head({INPUT: batch})
        if found.shape != (len(batch), *self.shape):
            raise FileError(f"{self._head.where}: gave smashed data of shape {list(found.shape)}")
        return found

    def encode(self, smashed: Any, codec: Codec | None = None) -> bytes:
        """Smashed data as they travel: under the run's codec, or under another."""
        return (self.up if codec is None else codec.deterministic()).encode(smashed)

    @staticmethod
    def decode(frame: bytes, max_elements: int | None = None) -> Any:
        """The server's answer, of at most so many elements."""
        limit = DEFAULT_LIMIT if max_elements is None else max_elements
        return decode(frame, max_elements=limit, like="numpy")

    @staticmethod
    def raw_bytes(crossed: Any) -> int:
        """How many bytes what crossed the cut takes without a codec."""
        return 4 * int(crossed.size)

    def finish(self, features: Any) -> Any:
        """The logits: the server's answer, or in a U-shape what the tail makes of its activations."""
        if self._tail is None:
            return features
        shape = self._tail.inputs[FEATURES][0]
        expected = [n if isinstance(n, int) else -1 for n in shape[1:]]
        if features.ndim != len(shape) or any(
            e not in (-1, n) for e, n in zip(expected, features.shape[1:], strict=True)
        ):
            raise MessageError(f"the server answered with activations of shape {list(features.shape)}")
        return self._tail({FEATURES: np.ascontiguousarray(features, np.float32)})[0]

    @staticmethod
    def count(images: Any) -> int:
        """How many samples there are."""
        return len(images)

    @staticmethod
    def split(images: Any, size: int) -> Sequence[Any]:
        """Samples in pieces of at most so many."""
        return [images[at : at + size] for at in range(0, len(images), size)]

    @staticmethod
    def join(pieces: Sequence[Any]) -> Any:
        """Pieces put together."""
        return np.concatenate(pieces)


def about_half(metadata: Any, kind: str) -> dict[str, Any]:
    """The JSON in the metadata of a half of that kind. Raises ValueError or KeyError if it is none."""
    if ABOUT not in metadata:
        raise ValueError("it does not say what it is")
    found = json.loads(metadata[ABOUT])
    if not isinstance(found, dict) or found["format"] != FORMAT:
        raise ValueError("it is of another format; use the same release of cutlayer on both sides")
    if found["kind"] != kind:
        raise ValueError(f"it is a half for {data_form.text(found['kind'])}, not for {kind}")
    return found


def _digest(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[0-9a-f]{64}", value):
        raise ValueError("the digest of the half is not 64 hexadecimal digits")
    return value


Form = dict[str, tuple[tuple[int, ...], Any] | None]


def _expect(session: Session, inputs: Form, outputs: Form) -> None:
    """Raise FileError unless a graph takes and gives batches of these shapes and types."""
    for found, expected in ((session.inputs, inputs), (session.outputs, outputs)):
        names = sorted(found) == sorted(expected)
        for name, form in expected.items() if names else ():
            shape, dtype = found[name]
            if form is not None and (shape[1:] != form[0] or dtype != form[1]):
                names = False
        if not names:
            said = {name: list(shape) for name, (shape, _) in found.items()}
            raise FileError(
                f"{session.where}: the graph has {said}, which is not what the file says of it; make it anew "
                f"with: {HOW}"
            )


def _short(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) else str(error)[:200]
