"""Split inference on the server: its half of a trained model as a service."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace

import grpc
import torch

from cutlayer.errors import CutlayerError, MessageError
from cutlayer.inference.batcher import Batcher, Batching
from cutlayer.inference.client_half import ClientSide
from cutlayer.inference.service import INFERENCE, InferenceService
from cutlayer.protocol.run_codecs import codec_of
from cutlayer.protocol.tensor_forms import describe, elements_of, forms_at, misfit, most_elements
from cutlayer.seeding import undisturbed
from cutlayer.split.tensors import Tensors, concatenate, divide_batch, main_output, samples_in, tensors_of
from cutlayer.training.load_run import Trained
from cutlayer.wire import log
from cutlayer.wire.grpc.guard.connections import Connections
from cutlayer.wire.grpc.guard.gate import Gate
from cutlayer.wire.grpc.health import add_health
from cutlayer.wire.grpc.options import server_options
from cutlayer.wire.limits import Limits, Places
from cutlayer.wire.metrics import Metrics
from cutlayer.wire.security.credentials import ServerSecurity

#: Beyond the tensor itself: header, and a codec that is worse than none.
_ROOM = 1 << 16
#: Calls at a time on one connection; threads of a device share it.
_STREAMS = 32


class ServerSide:
    """The server's half of a trained model as an engine for the batcher.

    Batch norm is in evaluation mode, so no sample depends on those beside it: an answer is the same in any
    batch, up to the order in which the machine adds floats.
    """

    def __init__(self, trained: Trained, samples: int, metrics: Metrics | None = None) -> None:
        side = ClientSide.of(trained)
        self.forms = forms_at(side.smash(trained.data_spec.form.zeros(1)[0]))
        self.samples = samples
        self.max_elements = samples * elements_of(self.forms)
        self.digest = side.digest
        self._body = trained.parts[1]
        self._codecs = side.codecs
        self._down = self._codecs.down if side.tail is not None else codec_of("none")
        self._to_tail = side.tail is not None
        self._metrics = metrics

    def admit(self, request: bytes) -> tuple[Tensors, int]:
        """The smashed data in a frame, if they can be those of this model."""
        x = self._codecs.decode_cut(request, most_elements(self.forms, self.samples))
        first = tensors_of(x)[0]
        samples = len(first) if first.dim() else 0
        wrong = misfit(x, self.forms, samples, torch.float32) if samples else "no samples"
        if wrong is not None:
            raise MessageError(f"smashed data of {wrong}; this model takes {self._wanted()}")
        return x, samples

    @torch.inference_mode()
    def infer(self, items: Sequence[Tensors]) -> list[bytes | CutlayerError]:
        """One pass for all; each answer in a frame of its own, encoded alone."""
        with undisturbed():
            found = self._body(concatenate(items) if len(items) > 1 else items[0])
        outputs: Tensors = found if self._to_tail else main_output(found)
        sizes = [samples_in(item) for item in items]
        if self._metrics is not None:
            self._metrics.inferred(len(items), sum(sizes))
        answers: list[bytes | CutlayerError] = []
        for output in divide_batch(outputs, sizes):
            try:
                answers.append(self._codecs.encode_evaluation(self._down, output))
            except CutlayerError as error:  # values that overflowed are the fault of that request
                answers.append(error)
        return answers

    def _wanted(self) -> str:
        if isinstance(self.forms, dict):
            return describe(self.forms, 1, torch.float32) + ", for each sample"
        return f"float32 of shape [samples, {', '.join(map(str, self.forms))}]"


@dataclass(frozen=True)
class Serving:
    """Where and how a model is served."""

    address: str = "127.0.0.1:50551"
    security: ServerSecurity = field(default_factory=ServerSecurity)
    insecure: bool = False
    batching: Batching = field(default_factory=Batching)
    limits: Limits = field(default_factory=Limits)
    metrics: int | None = None
    """The port for Prometheus."""
    metrics_host: str = "127.0.0.1"
    ready: Callable[[int], None] = lambda port: None
    """Called with the port when requests can come."""


def serve_inference(trained: Trained, serving: Serving) -> None:
    """Answer requests until SIGINT or SIGTERM; those that are under way are finished."""

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(ValueError, RuntimeError):  # not in the main thread: the caller has other means
                loop.add_signal_handler(number, stop.set)
        async with running(trained, serving) as port:
            serving.ready(port)
            await stop.wait()

    asyncio.run(main())


class running:  # noqa: N801, reads as `async with running(...)`
    """A server at work, in this event loop."""

    def __init__(self, trained: Trained, serving: Serving) -> None:
        self.metrics = Metrics()
        self.serving = serving
        self.side = ServerSide(trained, serving.batching.samples, self.metrics)
        self.batcher = Batcher(self.side, serving.batching)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> int:
        try:
            return await self._start()
        except BaseException:
            await self._stack.aclose()
            raise

    async def _start(self) -> int:
        serving, side = self.serving, self.side
        await self._stack.enter_async_context(self.batcher)
        limits = replace(serving.limits, message=4 * side.max_elements + _ROOM)
        places = Places(serving.batching.pending)
        connections = Connections(limits)
        gate = Gate(
            serving.security.identify,
            limits,
            places=places,
            metrics=self.metrics,
            admitted=connections.admitted,
        )
        options = server_options(limits, _STREAMS, pieces=False)
        server = grpc.aio.server(interceptors=(gate,), options=options)
        service = InferenceService(self.batcher, side.digest, self.metrics)
        server.add_generic_rpc_handlers((service.handler(),))
        health = add_health(server, [INFERENCE])
        port = serving.security.bind(server, serving.address, insecure=serving.insecure)
        connections.port = port
        await self._stack.enter_async_context(connections)
        if serving.metrics is not None:
            self._stack.callback(self.metrics.close)
            self.metrics.serve(serving.metrics, serving.metrics_host)
        await server.start()
        self._stack.push_async_callback(server.stop, 10.0)
        self._stack.push_async_callback(health.leave)
        await health.serving(True)
        log.event("serving", model=side.digest[:12], address=serving.address, port=port)
        return port

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()
        log.event("stopped", passes=self.batcher.passes)
