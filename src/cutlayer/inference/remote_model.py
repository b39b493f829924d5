"""Split inference on the device: its own half here, the rest on a server."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import grpc

from cutlayer.codecs import Codec
from cutlayer.codecs.registry import codec_of
from cutlayer.device.inference_half import OnnxHalf
from cutlayer.errors import CutlayerError, MessageError, RefusedError, UnreachableError
from cutlayer.imports import need
from cutlayer.wire.grpc.client.connection_errors import explain
from cutlayer.wire.grpc.options import PUSHBACK
from cutlayer.wire.messages.protobuf import PREDICT, message_class
from cutlayer.wire.security.credentials import ClientSecurity
from cutlayer.wire.text import plain_text

_CHANNEL = [
    # Beyond these gRPC itself would wait longer before it connects again than we do.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
]
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
# Elements of one sample of an answer whose form is not known here: of a U-shape, or of a task of its own.
_MOST_ELEMENTS = 1 << 20
# Bytes of an answer beside its elements, and of an element under a codec that is worse than none.
_ROOM, _ELEMENT = 1 << 16, 8


class Half(Protocol):
    """A client's half as `RemoteModel` uses it: a `ClientSide` of PyTorch, or an `OnnxHalf` without it."""

    @property
    def data_spec(self) -> Any:
        """What samples look like."""

    @property
    def classed(self) -> bool:
        """Whether the model says which class a sample has; other tasks have outputs of other shapes."""

    @property
    def digest(self) -> str:
        """By it the server knows whether the two halves belong together."""

    @property
    def u_shaped(self) -> bool:
        """Whether the server's answer goes through a tail."""

    def smash(self, images: Any) -> Any:
        """The smashed data of samples as they are stored."""

    def encode(self, smashed: Any, codec: Codec | None) -> bytes:
        """Smashed data as they travel: under the run's codecs, or under another."""

    def decode(self, frame: bytes, max_elements: int | None) -> Any:
        """The server's answer, of at most so many elements; by default, as many as any frame may have."""

    def raw_bytes(self, crossed: Any) -> int:
        """How many bytes what crossed the cut takes without a codec."""

    def finish(self, answer: Any) -> Any:
        """The model's output from the server's answer; in a U-shape, through the tail."""

    def count(self, images: Any) -> int:
        """How many samples there are."""

    def split(self, images: Any, size: int) -> Sequence[Any]:
        """Samples in pieces of at most so many."""

    def join(self, pieces: Sequence[Any]) -> Any:
        """Pieces put together."""


@dataclass
class _Asked:
    """A request on its way, which can be sent again."""

    request: Any
    samples: int
    call: Any


class RemoteModel:
    """A model whose larger part is elsewhere: `model(images)` gives logits, as the whole model would.

        with RemoteModel("train.example.org:50551", "device.safetensors", security) as model:
            logits = model(images)

    `half` is the directory of a run, an exported client's half, a `ClientSide` or an `OnnxHalf`. With a file
    that ends in .onnx no PyTorch is needed: samples and logits are arrays of NumPy. Threads may share one.
    A server that is busy or away for a moment is asked again for `retry` seconds, with growing pauses.
    """

    def __init__(
        self,
        address: str,
        half: Any,
        security: ClientSecurity | None = None,
        *,
        codec: str | None = None,
        batch: int = 64,
        timeout: float = 30.0,
        allowed: Any = None,
        retry: float = 10.0,
    ) -> None:
        """`allowed` are the models that the file of a half may name: see `ClientSide.load`."""
        self.side: Half = _half(half, allowed)
        self.address = address
        self.batch = batch
        self.timeout = timeout
        self.retry = retry
        self.bytes = 0
        """What crossed the cut, frame by frame; logits that come back are not counted."""
        self.raw_bytes = 0
        self._lock = Lock()
        self._security = security or ClientSecurity()
        self._codec = codec_of(codec) if codec else None
        # Before there is memory for it. gRPC takes 32 bits.
        largest = min(_ELEMENT * self._most_elements(batch) + _ROOM, (1 << 31) - 1)
        options = [*_CHANNEL, ("grpc.max_receive_message_length", largest)]
        self._channel = self._security.sync_channel(address, options)
        self._predict: Any = self._channel.unary_unary(
            PREDICT,
            request_serializer=message_class("PredictRequest").SerializeToString,
            response_deserializer=message_class("PredictReply").FromString,
        )

    def __call__(self, images: Any) -> Any:
        """The model's output for samples as they are stored: uint8 images, features, or several tensors in a
        tuple or a dict, as the data had them."""
        waiting: deque[_Asked] = deque()
        try:
            return self.side.join(list(self._pieces(images, waiting)))
        finally:
            for asked in waiting:  # after an error, nobody wants the others' answers
                asked.call.cancel()

    def _pieces(self, images: Any, waiting: deque[_Asked]) -> Iterator[Any]:
        for piece in self.side.split(images, self.batch):
            # While the server computes, the next batches go through this half.
            if len(waiting) >= 4:
                yield self._answer(waiting.popleft())
            smashed = self.side.smash(piece)
            frame = self.side.encode(smashed, self._codec)
            self._count(frame, smashed)
            request = message_class("PredictRequest")(frame=frame, half=self.side.digest)
            waiting.append(_Asked(request, self.side.count(piece), self._ask(request)))
        while waiting:
            yield self._answer(waiting.popleft())

    logits = __call__

    def _ask(self, request: Any) -> Any:
        return self._predict.future(request, timeout=self.timeout, metadata=self._security.metadata)

    def _frame(self, asked: _Asked) -> bytes:
        """The server's answer; asked again, if the server says so or cannot be reached, for a while."""
        end, pause = time.monotonic() + self.retry, _FIRST_PAUSE
        while True:
            try:
                found: bytes = asked.call.result().frame
            except grpc.RpcError as error:
                again, meaning = self._meaning(error)
                if not again or time.monotonic() + pause > end:
                    raise meaning from None
            else:
                return found
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, _LONGEST_PAUSE)
            asked.call = self._ask(asked.request)

    def _meaning(self, error: Any) -> tuple[bool, CutlayerError]:
        """Whether to ask again, and what to say if not."""
        codes = grpc.StatusCode
        code = error.code()
        if code in (codes.INVALID_ARGUMENT, codes.FAILED_PRECONDITION, codes.RESOURCE_EXHAUSTED):
            # A request that is too large is RESOURCE_EXHAUSTED as well, and stays too large.
            told = {name for name, _ in error.trailing_metadata() or ()}
            again = code == codes.RESOURCE_EXHAUSTED and PUSHBACK in told
            return again, RefusedError(f"{self.address}: {plain_text(error.details() or '')}")
        meaning = explain(error, self.address, self._security)
        return code == codes.UNAVAILABLE and isinstance(meaning, UnreachableError), meaning

    def _answer(self, asked: _Asked) -> Any:
        frame, samples = self._frame(asked), asked.samples
        classed, u_shaped = self.side.classed, self.side.u_shaped
        answer = self.side.decode(frame, self._most_elements(samples))
        if u_shaped:
            self._count(frame, answer)
        x = self.side.finish(answer)
        # Other tasks than classification have outputs of other shapes.
        wanted = [samples, self.side.data_spec.classes] if classed else [samples]
        if list(x.shape[: len(wanted)]) != wanted or (classed and len(x.shape) != 2):
            raise MessageError(
                f"{self.address}: the server answered with shape {list(x.shape)}; expected {wanted}"
            )
        return x

    def _most_elements(self, samples: int) -> int:
        """How many an answer can have. Logits have a size that is known before memory is taken for them."""
        known = self.side.classed and not self.side.u_shaped
        return samples * (self.side.data_spec.classes if known else _MOST_ELEMENTS)

    def _count(self, frame: bytes, x: Any) -> None:
        with self._lock:
            self.bytes += len(frame)
            self.raw_bytes += self.side.raw_bytes(x)

    def close(self) -> None:
        """End the connection."""
        self._channel.close()

    def __enter__(self) -> RemoteModel:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _half(given: Any, allowed: Any) -> Half:
    """The half that was given, or that a file or directory holds. Imports PyTorch only if it is needed."""
    if isinstance(given, str | Path):
        if Path(given).suffix == ".onnx":
            return OnnxHalf.load(given)
        need("torch", "a half that is no .onnx file")
        from cutlayer.inference.client_half import ClientSide

        return ClientSide.load(given, allowed=allowed)
    if hasattr(given, "smash"):
        half: Half = given
        return half
    from cutlayer.inference.client_half import ClientSide

    return ClientSide.of(given)
