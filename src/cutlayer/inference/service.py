"""The gRPC service Inference: is it a request, and the way to the batcher. Who asks, the gate has seen."""

from __future__ import annotations

from typing import Any

import grpc

from cutlayer.errors import CutlayerError
from cutlayer.inference.batcher import Batcher
from cutlayer.wire import log
from cutlayer.wire.grpc.guard.gate import caller
from cutlayer.wire.messages.protobuf import INFERENCE, PREDICT, message_class
from cutlayer.wire.meter import Direction, Kind
from cutlayer.wire.metrics import Metrics

__all__ = ["INFERENCE", "PREDICT", "InferenceService"]


class InferenceService:
    """Answers Predict. A bad request gets a status with the reason, and disturbs nobody else."""

    def __init__(self, batcher: Batcher[Any], half: str, metrics: Metrics | None = None) -> None:
        self.batcher = batcher
        self.half = half
        self.metrics = metrics

    def handler(self) -> Any:
        """What to give to `grpc.aio.Server.add_generic_rpc_handlers`."""
        method = grpc.unary_unary_rpc_method_handler(
            self.predict,
            request_deserializer=message_class("PredictRequest").FromString,
            response_serializer=message_class("PredictReply").SerializeToString,
        )
        return grpc.method_handlers_generic_handler(INFERENCE, {"Predict": method})

    async def predict(self, request: Any, context: Any) -> Any:
        """One request."""
        codes = grpc.StatusCode
        if request.half and request.half != self.half:
            mismatch = (
                "the client's half does not belong to the server's: it is of another run or checkpoint. "
                "Export it again from the run that is served: cutlayer export RUN --part client"
            )
            await self._refuse(context, codes.FAILED_PRECONDITION, "half", mismatch)
        try:
            answer = await self.batcher.ask(request.frame)
        except CutlayerError as error:
            await self._refuse(context, codes.INVALID_ARGUMENT, "request", error)
        log.event("predicted", level="debug", client=caller.get(), bytes=len(request.frame))
        if self.metrics is not None:
            self.metrics.queue("requests", self.batcher.pending)
            self.metrics.sent(Kind.SMASHED, Direction.UP, len(request.frame))
            self.metrics.sent(Kind.SMASHED, Direction.DOWN, len(answer))
        return message_class("PredictReply")(frame=answer)

    async def _refuse(self, context: Any, code: Any, reason: str, error: object) -> None:
        """End the call. Raises."""
        log.event("refused", level="warning", reason=reason, why=str(error), peer=context.peer())
        if self.metrics is not None:
            self.metrics.refused(reason)
        await context.abort(code, str(error))
