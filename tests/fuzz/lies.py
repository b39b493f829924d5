"""The lies of the protocol fuzzer: what is sent instead of the answers to a message."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from typing import Any

import torch

from cutlayer.codecs import codec, decode
from cutlayer.codecs.frame import CHECKED_FROM
from cutlayer.codecs.tensor_set.frame_set import is_set, join_frames, split_frames
from cutlayer.codecs.tensor_set.integers import encode_integers
from cutlayer.errors import FrameError
from cutlayer.protocol.state_bytes import from_bytes, to_bytes
from cutlayer.wire.messages.base import Message, layout_of, pack
from cutlayer.wire.messages.scores import Scores, Sums
from cutlayer.wire.messages.types import (
    TYPES,
    Gradient,
    Labels,
    Report,
    Share,
    Smashed,
    State,
    SyncUp,
)

DENSE = codec("dense")


def _tensor(body: bytes, change: Callable[[torch.Tensor], torch.Tensor]) -> bytes:
    return DENSE.encode(change(decode(body)))


def _not_finite(body: bytes, bits: bytes) -> bytes:
    made = bytearray(DENSE.encode(torch.ones_like(decode(body))))
    made[-4:] = bits
    made[4:8] = struct.pack("<I", zlib.crc32(made[CHECKED_FROM:]))
    return bytes(made)


def foreign(rng: random.Random, number: int) -> Message:
    kind = rng.choice(TYPES)
    values: dict[str, Any] = {}
    for name in layout_of(kind).names:
        values[name] = {
            "number": number,
            "share": rng.choice(list(Share)),
            "evaluation": rng.random() < 0.5,
        }.get(name, rng.choice([0, 1, 7, 1 << 20]))
    if "body" in kind.__dataclass_fields__:
        values["body"] = rng.randbytes(rng.choice([0, 1, 40, 4000]))
        if "first" in values:
            values["first"] = 0
    return kind(**values)


def _state(rng: random.Random, body: bytes) -> bytes:
    state = from_bytes(body)
    name = rng.choice(sorted(state)) if state else ""
    what = rng.choice(["missing", "shape", "dtype", "nan", "huge", "more", "negative"])
    if what == "more" or not name:
        state["optimizer.0.momentum_buffer_x"] = torch.zeros(3)
    elif what == "missing":
        del state[name]
    else:
        t = state[name]
        state[name] = {
            "shape": torch.zeros(7),
            "dtype": t.to(torch.float64) if t.dtype != torch.float64 else t.to(torch.float32),
            "nan": torch.full_like(t, float("nan")) if t.is_floating_point() else t.to(torch.float32),
            "huge": torch.full_like(t, 1e30) if t.is_floating_point() else t - 5,
            "negative": -torch.ones_like(t) if "var" in name else torch.zeros(2, 2),
        }[what]
    return to_bytes(state)


def _is_frame(body: bytes) -> bool:
    try:
        decode(body)
    except FrameError:
        return False
    return True


def _frame(rng: random.Random, body: bytes) -> bytes:
    """A frame of another tensor than this one, or none."""
    if not decode(body).is_floating_point():
        most = 1 << 52
        return rng.choice(
            [
                lambda: encode_integers(torch.full((len(decode(body)),), most)),
                lambda: encode_integers(decode(body).long() + most),
                lambda: DENSE.encode(decode(body).float() + 0.5),
                lambda: body[: len(body) // 2],
            ]
        )()
    return rng.choice(
        [
            lambda: _tensor(body, lambda t: torch.cat([t, t])),
            lambda: _tensor(body, lambda t: t[:1].contiguous()),
            lambda: _tensor(body, lambda t: t.to(torch.float64)),
            lambda: _tensor(body, lambda t: t.reshape(1, -1)),
            lambda: _tensor(body, lambda t: torch.full_like(t, 3e38)),
            lambda: _not_finite(body, b"\0\0\xc0\x7f"),
            lambda: _not_finite(body, b"\0\0\x80\x7f"),
            lambda: body[: len(body) // 2],
            lambda: encode_integers(torch.zeros(1, dtype=torch.int64).expand(1 << 24)),
            lambda: b"",
        ]
    )()


def _set(rng: random.Random, body: bytes) -> bytes:
    """A set of other frames than these, under other names, or none."""
    frames = {name: bytes(frame) for name, frame in split_frames(body).items()}
    name = rng.choice(list(frames))
    others = {own: frame for own, frame in frames.items() if own != name}
    cut = rng.randrange(1, 40)
    return rng.choice(
        [
            lambda: join_frames({**frames, name: _frame(rng, frames[name])}),
            lambda: join_frames({**frames, name: _frame(rng, frames[name])}),
            lambda: join_frames(others) if others else b"",
            lambda: join_frames({**others, "another": frames[name]}),
            lambda: join_frames({**frames, "more": frames[name]}),
            lambda: join_frames(dict(reversed(frames.items()))) if others else body[:-1],
            lambda: frames[name],
            lambda: body[:cut],
            lambda: body[:5] + b"\xff" + body[6:],
        ]
    )()


def lies_of_data(rng: random.Random) -> list[Callable[[Any], Any]]:
    """Changes of what a client says of its data, none of which can be believed."""

    def changed(**values: Any) -> Callable[[Any], Any]:
        def change(ready: Any) -> Any:
            for name, value in values.items():
                if isinstance(value, list):
                    getattr(ready, name)[:] = value
                else:
                    setattr(ready, name, value)
            return ready

        return change

    kinds = [
        changed(samples=0),
        changed(samples=(1 << 31) - 1),
        changed(test_samples=(1 << 31) - 1),
        changed(classes=3),
        changed(shape=[1, 1 << 20, 1 << 20]),
        changed(shape=[]),
        changed(std=[0.0]),
        changed(mean=[float("nan")]),
        changed(augment="anything"),
        changed(class_names=["a"] * 10),
        changed(size=1 << 20),
    ]
    return rng.sample(kinds, rng.randrange(3))


def lie(rng: random.Random, message: Message) -> bytes:
    """The bytes of an answer, with something wrong that only its meaning shows."""
    joined = b"".join
    if isinstance(message, (Smashed, Gradient)):
        changed = (_set if is_set(message.body) else _frame)(rng, message.body)
        return joined(pack(type(message)(message.number, changed)))
    if isinstance(message, Labels):
        choices = [(0, b""), (1 << 31, message.body), (message.count, b"\xff" * len(message.body))]
        if _is_frame(message.body):  # targets that are floats
            choices += [(message.count, _frame(rng, message.body)) for _ in range(3)]
        count, body = rng.choice(choices)
        return joined(pack(Labels(message.number, body, count)))
    if isinstance(message, Report):
        bad = rng.choice([float("nan"), float("inf"), -1.0, 3e38])
        field = rng.choice(["data", "forward", "encode", "decode", "backward"])
        values = {name: getattr(message, name) for name in layout_of(Report).names}
        values |= {field: bad} if rng.random() < 0.7 else {"samples": rng.choice([0, 9, (1 << 32) - 1])}
        return joined(pack(Report(**values)))
    if isinstance(message, Scores):
        values = {name: getattr(message, name) for name in layout_of(Scores).names}
        values |= rng.choice(
            [{"loss": float("nan")}, {"top1": 1 << 31}, {"samples": 0}, {"top5": 0, "top1": 1}]
        )
        return joined(pack(Scores(**values)))
    if isinstance(message, Sums):
        sums = list(message.values)
        sums[rng.randrange(len(sums))] = rng.choice([float("nan"), float("inf"), -1.0, 1e300, 0.5])
        body = rng.choice([Sums.pack_values(sums), message.body[:-8], message.body + bytes(8), b"", b"x"])
        return joined(pack(Sums(message.number, body, rng.choice([message.samples, 0, 1 << 31]))))
    if isinstance(message, State):
        return joined(pack(State(message.number, _state(rng, message.body))))
    if isinstance(message, SyncUp):
        first, second = message.frames
        share = message.share
        if first:
            first = rng.choice(
                [
                    lambda: _tensor(first, lambda t: torch.full_like(t, 1e30)),
                    lambda: _tensor(first, lambda t: t[:-1].contiguous()),
                    lambda: _not_finite(first, b"\0\0\xc0\x7f"),
                    lambda: first[:-3],
                ]
            )()
        else:
            share = Share.GRADIENTS
        return joined(pack(SyncUp(message.number, first + second, share, len(first))))
    return b""


def mutate(rng: random.Random, answers: list[Message], silent: bool) -> list[bytes]:
    """What is sent instead of the answers; never what was asked for."""
    packed = [b"".join(pack(answer)) for answer in answers]
    kinds = ["empty", "truncate", "flip", "repeat", "foreign", "number", "one", "one", "one", "one"]
    if len(packed) > 1:
        kinds.append("swap")
    # Rarely, because the server then waits until the deadline.
    kind = "silence" if silent and rng.random() < 0.02 else rng.choice(kinds)
    at = rng.randrange(len(packed))
    number = answers[at].number
    if kind == "empty":
        packed[at] = b""
    elif kind == "truncate":
        packed[at] = packed[at][: rng.randrange(1, 9)]
    elif kind == "flip":
        made = bytearray(packed[at])
        made[rng.randrange(9)] ^= 1 << rng.randrange(8)  # the type or the number
        packed[at] = bytes(made)
    elif kind == "repeat":
        packed.insert(0, packed[0])
    elif kind == "foreign":
        message = foreign(rng, number + 1)
        packed[at] = b"".join(pack(message))
    elif kind == "number":
        made = bytearray(packed[at])
        made[1:9] = struct.pack("<Q", number + rng.choice([1, 1 << 40]))
        packed[at] = bytes(made)
    elif kind == "swap":
        packed.reverse()
    elif kind == "silence":
        return []
    else:
        packed[at] = lie(rng, answers[at])
    return packed
