"""Clients' requests on the server: received, checked, computed and answered.

All that comes from a client is typed, sized, shaped and finite before it is used. Who sends anything else is
told why and disconnected. A batch that is well-formed but that the model cannot use, or that is not finite,
is rejected, and the next one may do better.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from cutlayer.codecs import Codec, codec
from cutlayer.errors import AbsentError, CutlayerError, FrameError, MessageError, NonFiniteError
from cutlayer.protocol.tensor_forms import check_number, check_values
from cutlayer.remote.clients import ClientRequests
from cutlayer.remote.engine import Gradients, OpenBatch, PartEngine
from cutlayer.remote.offer import RemoteOffer
from cutlayer.remote.packing import pack_tensors, shapes_of, typed_as, unpack_tensor, unpack_tensors
from cutlayer.remote.saved import Answers
from cutlayer.remote.transport import LoopTransport
from cutlayer.seeds import derive
from cutlayer.split.tensors import Tensors, elements, floats, samples_in, tensors_of
from cutlayer.wire.messages.base import Message
from cutlayer.wire.messages.named import Named
from cutlayer.wire.messages.remote_loop import (
    Backward,
    Forward,
    InputGradients,
    Leave,
    Outputs,
    Rejected,
)
from cutlayer.wire.meter import Kind

#: The names of what crosses: smashed data and its gradient, targets, the part's outputs and theirs.
INPUTS, TARGETS, OUTPUTS = "inputs", "targets", "outputs"
_DENSE = codec("dense")


@dataclass(frozen=True)
class Accepted:
    """A batch to train on has gone forward."""


@dataclass(frozen=True)
class Applied:
    """A batch has gone backward: its gradients, and the answer that the client waits for."""

    client: int
    number: int
    samples: int
    loss: float | None
    gradients: Gradients
    answer: bytes


class Requests:
    """Serves one message of one client at a time."""

    def __init__(
        self,
        transport: LoopTransport,
        engine: PartEngine,
        offer: RemoteOffer,
        down: Codec,
        *,
        max_elements: int,
        max_value: float,
        seed: int,
    ) -> None:
        self.left: set[int] = set()
        """Clients whose loops are over."""
        self._transport = transport
        self._engine = engine
        self._offer = offer
        self._down = down
        self._max_elements = max_elements
        self._max_value = max_value
        self._seed = seed
        self._clients = [ClientRequests(offer.open) for _ in range(transport.clients)]

    def serve(self, client: int) -> Accepted | Applied | None:
        """Answer the client's next message. Raises AbsentError if it is gone, or has to go."""
        try:
            return self._handle(client, self._transport.receive(client))
        except AbsentError:
            self._clients[client].open.clear()
            raise
        except (MessageError, FrameError) as error:
            self._clients[client].open.clear()
            named = MessageError(f"{self._transport.label(client)}: {error}")
            self._transport.fault(client, named)
            raise AbsentError(str(named)) from error

    def answer(self, applied: Sequence[Applied]) -> None:
        """Tell clients that their gradients have reached the weights."""
        self.finish(applied)
        for found in applied:
            self._transport.send(found.client, InputGradients(found.number, found.answer))

    def finish(self, applied: Sequence[Applied]) -> None:
        """Remember their answers, in case that they are asked for again."""
        for found in applied:
            self._clients[found.client].finish(found.number, found.answer)

    def answers(self) -> Answers:
        """What to save."""
        return {i: (client.session, dict(client.done)) for i, client in enumerate(self._clients)}

    def restore(self, answers: Mapping[int, tuple[int, Mapping[int, bytes]]]) -> None:
        """Go on from what was saved."""
        for number, (session, done) in answers.items():
            if number < len(self._clients):
                self._clients[number].begin(session)
                self._clients[number].done.update(done)

    def _handle(self, client: int, message: Message) -> Accepted | Applied | None:
        known = self._clients[client]
        if isinstance(message, Leave):
            self.left.add(client)
            known.open.clear()
            self._transport.release(client, "this client's loop is over")
            return None
        if not isinstance(message, Forward | Backward):
            raise MessageError(f"a {type(message).__name__} where a request is expected")
        known.begin(message.session)
        if message.number in known.done:
            # It was sent again to a server that was started anew.
            if isinstance(message, Backward):
                done = known.done[message.number]
                self._transport.send(client, InputGradients(message.number, done))
            return None
        try:
            if isinstance(message, Forward):
                return self._forward(client, message)
            return self._backward(client, message)
        except (MessageError, FrameError):
            raise
        except NonFiniteError as error:
            self._reject(client, message, str(error))
        except CutlayerError as error:
            self._reject(client, message, str(error))
        except (ArithmeticError, LookupError, MemoryError, RuntimeError, TypeError, ValueError) as error:
            # The module and the loss are the operator's code, the data the client's: both may want to know.
            why = f"the server's part cannot use this batch ({type(error).__name__}: {error})"
            self._transport.note(f"{self._transport.label(client)}: {why}")
            self._reject(client, message, why)
        return None

    def _forward(self, client: int, message: Forward) -> Accepted | None:
        found = {entry.name: entry.data for entry in message.tensors}
        if INPUTS not in found or not found.keys() <= {INPUTS, TARGETS}:
            raise MessageError(
                f"a request with the tensors {sorted(found)}; expected inputs, and perhaps targets"
            )
        x = self._inputs(found[INPUTS])
        targets = self._targets(found[TARGETS], samples_in(x)) if TARGETS in found else None
        if targets is not None and not self._offer.loss:
            raise MessageError("targets came to a server that has no loss")
        computed = self._engine.forward(
            x,
            targets,
            training=message.training,
            gradient=message.gradient,
            seed=derive("remote", self._seed, client, message.number),
        )
        tensors = []
        if computed.outputs is not None:
            data = self._pack(computed.outputs, message.training, client, message.number)
            tensors.append(Named(OUTPUTS, Kind.SMASHED, data))
        if computed.gradient is not None:
            data = self._pack(typed_as(computed.gradient, x), message.training, client, message.number)
            tensors.append(Named(INPUTS, Kind.GRADIENTS, data))
        if computed.open is not None:
            self._clients[client].keep(message.number, computed.open)
        loss = math.nan if computed.loss is None else computed.loss
        self._transport.send(client, Outputs(message.number, Outputs.pack_tensors(tensors), loss))
        return Accepted() if message.gradient else None

    def _backward(self, client: int, message: Backward) -> Applied | None:
        batch = self._clients[client].open.pop(message.number, None)
        if batch is None:
            self._reject(
                client,
                message,
                f"batch {message.number} is not open: it went backward before, or was dropped, because only "
                f"{self._offer.open} batches of a client are kept between forward and backward",
            )
            return None
        check_number(message.scale, "the scale of the loss", low=-self._max_value, high=self._max_value)
        gradient = self._gradient(message, batch)
        back, gradients = self._engine.backward(batch, message.scale, gradient)
        answer = b""
        if back is not None:
            data = self._pack(back, True, client, message.number, 1)
            answer = InputGradients.pack_tensors([Named(INPUTS, Kind.GRADIENTS, data)])
        return Applied(client, message.number, batch.samples, batch.loss, gradients, answer)

    def _inputs(self, data: bytes) -> Tensors:
        shape, batch = self._offer.shape, self._offer.batch
        most = self._max_elements if shape is None else min(self._max_elements, batch * math.prod(shape))
        x = unpack_tensors(data, most, self._engine.device)
        tensors = tensors_of(x)
        right = all(t.dim() > 0 and len(t) == len(tensors[0]) <= batch for t in tensors)
        right = right and any(t.is_floating_point() for t in tensors)
        one = tensors[0] if isinstance(x, Tensor) else None
        if not right or (shape is not None and (one is None or tuple(one.shape[1:]) != shape)):
            form = "any shape" if shape is None else f"shape [samples, {', '.join(map(str, shape))}]"
            given = ", ".join(f"{tensor.dtype} and shape {list(tensor.shape)}" for tensor in tensors[:4])
            raise MessageError(
                f"smashed data of {given}; expected floats of {form}, with at most {batch} samples"
            )
        for tensor in tensors:
            check_values(tensor, self._max_value, "smashed data")
        return x

    def _targets(self, data: bytes, samples: int) -> Tensor:
        targets = unpack_tensor(data, self._max_elements, self._engine.device)
        if not targets.dim() or len(targets) != samples:
            raise MessageError(f"targets of shape {list(targets.shape)} for {samples} samples")
        check_values(targets, self._max_value, "targets")
        return targets

    def _gradient(self, message: Backward, batch: OpenBatch) -> Tensors | None:
        found = {entry.name: entry.data for entry in message.tensors}
        names = set() if batch.outputs is None else {OUTPUTS}
        if found.keys() != names:
            raise MessageError(f"a backward with the gradients {sorted(found)}; expected {sorted(names)}")
        if batch.outputs is None:
            return None
        outputs = floats(batch.outputs)
        gradient = unpack_tensors(found[OUTPUTS], elements(outputs), self._engine.device)
        given, expected = shapes_of(gradient), shapes_of(outputs)
        if given != expected or not all(t.is_floating_point() for t in tensors_of(gradient)):
            raise MessageError(f"a gradient of shape {given} for outputs of shape {expected}")
        for tensor in tensors_of(gradient):
            check_values(tensor, self._max_value, "a gradient")
        return gradient

    def _pack(self, x: Tensors, training: bool, client: int, number: int, part: int = 0) -> bytes:
        down = self._down if training else self._down.deterministic()
        return pack_tensors(x, down, derive("remote-down", self._seed, client, number, part))

    def _reject(self, client: int, message: Message, why: str) -> None:
        self._transport.send(client, Rejected(message.number, why[:2000].encode("utf-8", "replace")))
