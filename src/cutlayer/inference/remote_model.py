"""Split inference on the device: its own half here, the rest on a server."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import grpc
import torch
from torch import Tensor

from cutlayer.codecs import decode
from cutlayer.errors import MessageError, RefusedError
from cutlayer.inference.client_half import ClientSide
from cutlayer.inference.service import PREDICT
from cutlayer.models import AllowedModels
from cutlayer.protocol.run_codecs import codec_of
from cutlayer.training.load_run import Trained
from cutlayer.wire.grpc.connection_errors import explain
from cutlayer.wire.messages.protobuf import message_class
from cutlayer.wire.security.credentials import ClientSecurity


class RemoteModel:
    """A model whose larger part is elsewhere: `model(images)` gives logits, as the whole model would.

        with RemoteModel("train.example.org:50551", "device.safetensors", security) as model:
            logits = model(images)

    `half` is the directory of a run, an exported client's half, or a `ClientSide`. Threads may share one.
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
    ) -> None:
        """`allowed` are the models that the file of a half may name: see `ClientSide.load`."""
        if isinstance(half, Trained):
            half = ClientSide.of(half)
        self.side = half if isinstance(half, ClientSide) else ClientSide.load(half, allowed=allowed)
        self.address = address
        self.batch = batch
        self.timeout = timeout
        self.bytes = 0
        """What crossed the cut, frame by frame; logits that come back are not counted."""
        self.raw_bytes = 0
        self._lock = Lock()
        self._security = security or ClientSecurity()
        self._codec = codec_of(codec).deterministic() if codec else self.side.up
        self._channel = self._security.sync_channel(address, [("grpc.max_receive_message_length", -1)])
        self._predict: Any = self._channel.unary_unary(
            PREDICT,
            request_serializer=message_class("PredictRequest").SerializeToString,
            response_deserializer=message_class("PredictReply").FromString,
        )

    def __call__(self, images: Tensor) -> Tensor:
        """The model's output for samples as they are stored: uint8 images or features."""
        waiting: deque[tuple[Any, int]] = deque()
        try:
            return torch.cat(list(self._pieces(images, waiting)))
        finally:
            for call, _ in waiting:  # after an error, nobody wants the others' answers
                call.cancel()

    def _pieces(self, images: Tensor, waiting: deque[tuple[Any, int]]) -> Iterator[Tensor]:
        for piece in torch.split(images, self.batch):
            # While the server computes, the next batches go through this half.
            if len(waiting) >= 4:
                yield self._answer(*waiting.popleft())
            smashed = self.side.smash(piece)
            frame = self._codec.encode(smashed)
            self._count(frame, smashed)
            request = message_class("PredictRequest")(frame=frame, half=self.side.digest)
            call = self._predict.future(request, timeout=self.timeout, metadata=self._security.metadata)
            waiting.append((call, len(piece)))
        while waiting:
            yield self._answer(*waiting.popleft())

    logits = __call__

    @torch.no_grad()
    def _answer(self, call: Any, samples: int) -> Tensor:
        try:
            frame = call.result().frame
        except grpc.RpcError as error:
            refusals = (
                grpc.StatusCode.INVALID_ARGUMENT,
                grpc.StatusCode.FAILED_PRECONDITION,
                grpc.StatusCode.RESOURCE_EXHAUSTED,
            )
            if call.code() in refusals:
                raise RefusedError(f"{self.address}: {call.details()}") from None
            raise explain(error, self.address, self._security) from None
        x = decode(frame)
        if self.side.tail is not None:
            self._count(frame, x)
            x = self.side.tail(x)
        if x.shape != (samples, self.side.data_spec.classes):
            raise MessageError(
                f"{self.address}: the server answered with shape {list(x.shape)}; expected "
                f"{[samples, self.side.data_spec.classes]}"
            )
        return x

    def _count(self, frame: bytes, x: Tensor) -> None:
        with self._lock:
            self.bytes += len(frame)
            self.raw_bytes += 4 * x.numel()

    def close(self) -> None:
        """End the connection."""
        self._channel.close()

    def __enter__(self) -> RemoteModel:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
