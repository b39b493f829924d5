"""Split inference on the device: its own half here, the rest on a server."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

import grpc
import torch
from torch import Tensor

from cutlayer.errors import CutlayerError, MessageError, RefusedError, UnreachableError
from cutlayer.inference.client_half import ClientSide
from cutlayer.inference.service import PREDICT
from cutlayer.models import AllowedModels
from cutlayer.protocol.run_codecs import codec_of
from cutlayer.split.tensors import Tensors, main_output, raw_bytes
from cutlayer.training.load_run import Trained
from cutlayer.wire.grpc.connection_errors import explain
from cutlayer.wire.grpc.gate import PUSHBACK
from cutlayer.wire.messages.protobuf import message_class
from cutlayer.wire.security.credentials import ClientSecurity
from cutlayer.wire.text import plain_text

_CHANNEL = [
    ("grpc.max_receive_message_length", -1),
    # Beyond these gRPC itself would wait longer before it connects again than we do.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
]
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


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

    `half` is the directory of a run, an exported client's half, or a `ClientSide`. Threads may share one.
    A server that is busy or away for a moment is asked again for `retry` seconds, with growing pauses.
    """

    def __init__(
        self,
        address: str,
        half: ClientSide | Trained | str | Path,
        security: ClientSecurity | None = None,
        *,
        codec: str | None = None,
        batch: int = 64,
        timeout: float = 30.0,
        allowed: AllowedModels | None = None,
        retry: float = 10.0,
    ) -> None:
        """`allowed` are the models that the file of a half may name: see `ClientSide.load`."""
        if isinstance(half, Trained):
            half = ClientSide.of(half)
        self.side = half if isinstance(half, ClientSide) else ClientSide.load(half, allowed=allowed)
        self.address = address
        self.batch = batch
        self.timeout = timeout
        self.retry = retry
        self.bytes = 0
        """What crossed the cut, frame by frame; logits that come back are not counted."""
        self.raw_bytes = 0
        self._lock = Lock()
        self._security = security or ClientSecurity()
        codecs = self.side.codecs
        self._codecs = replace(codecs, up=codec_of(codec), tensors={}) if codec else codecs
        self._channel = self._security.sync_channel(address, _CHANNEL)
        self._predict: Any = self._channel.unary_unary(
            PREDICT,
            request_serializer=message_class("PredictRequest").SerializeToString,
            response_deserializer=message_class("PredictReply").FromString,
        )

    def __call__(self, images: Tensor) -> Tensor:
        """The model's output for samples as they are stored: uint8 images or features."""
        waiting: deque[_Asked] = deque()
        try:
            return torch.cat(list(self._pieces(images, waiting)))
        finally:
            for asked in waiting:  # after an error, nobody wants the others' answers
                asked.call.cancel()

    def _pieces(self, images: Tensor, waiting: deque[_Asked]) -> Iterator[Tensor]:
        for piece in torch.split(images, self.batch):
            # While the server computes, the next batches go through this half.
            if len(waiting) >= 4:
                yield self._answer(waiting.popleft())
            smashed = self.side.smash(piece)
            frame = self._codecs.encode_evaluation(self._codecs.up, smashed)
            self._count(frame, smashed)
            request = message_class("PredictRequest")(frame=frame, half=self.side.digest)
            waiting.append(_Asked(request, len(piece), self._ask(request)))
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

    @torch.no_grad()
    def _answer(self, asked: _Asked) -> Tensor:
        frame, samples = self._frame(asked), asked.samples
        # Logits have a size that is known before any memory is taken for them.
        classed = self.side.data_spec.form.classed
        most = samples * self.side.data_spec.classes if classed and self.side.tail is None else None
        answer = self._codecs.decode_cut(frame, most)
        if self.side.tail is not None:
            self._count(frame, answer)
            answer = self.side.tail(answer)
        x = main_output(answer)
        # Other tasks than classification have outputs of other shapes.
        wanted = [samples, self.side.data_spec.classes] if classed else [samples]
        if list(x.shape[: len(wanted)]) != wanted or (classed and x.dim() != 2):
            raise MessageError(
                f"{self.address}: the server answered with shape {list(x.shape)}; expected {wanted}"
            )
        return x

    def _count(self, frame: bytes, x: Tensors) -> None:
        with self._lock:
            self.bytes += len(frame)
            self.raw_bytes += raw_bytes(x)

    def close(self) -> None:
        """End the connection."""
        self._channel.close()

    def __enter__(self) -> RemoteModel:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
