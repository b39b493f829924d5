"""A client without PyTorch at work: answers the server's messages as `client.split_client` does."""

from __future__ import annotations

import math
from collections.abc import Iterable
from time import perf_counter
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from cutlayer.codecs import Codec, decode
from cutlayer.codecs.dense import Dense
from cutlayer.codecs.tensor_set.integers import pack_bits
from cutlayer.device.batches import Batches, normalized
from cutlayer.device.error_feedback import ErrorFeedback
from cutlayer.device.samples import Samples
from cutlayer.device.training_half import TrainingHalf, assign, flatten
from cutlayer.errors import FileError, MessageError
from cutlayer.seeds import derive
from cutlayer.wire.messages.base import Message
from cutlayer.wire.messages.client_steps import Handlers, OpenStep, answers_from_network, step_of
from cutlayer.wire.messages.types import (
    GRADIENTS,
    Ask,
    BeginStep,
    Evaluate,
    Gradient,
    Labels,
    Share,
    Smashed,
    State,
    SyncDown,
    SyncUp,
)

_DENSE = Dense()
_OWN = "own."
_ROUNDING = 1e-9


class DeviceClient:
    """Client number `client` of a run in mode parallel, with an ONNX half."""

    def __init__(self, client: int, half: TrainingHalf, batches: Batches, test: Samples | None) -> None:
        self.client, self.half, self.batches, self.test = client, half, batches, test
        run = half.file.run
        self._seed, self._epochs = run.seed, run.epochs
        self._classes = batches.form.classes
        self._sync, self._measures = run.sync, run.measure
        elements = sum(weight.size for weight in half.weights)
        lossy = self._sync != _DENSE and run.feedback
        self.feedback = ErrorFeedback(elements) if lossy and elements else None
        self._most = max(elements, sum(b.size for b in half.buffers), 1)
        self._open: OpenStep | None = None
        self._evaluated: dict[str, Any] | None = None
        self._handlers: Handlers = {
            BeginStep: self._begin,
            Gradient: self._on_gradient,
            SyncDown: self._on_mean,
            Ask: self._on_ask,
            Evaluate: self._on_evaluate,
            State: self._on_state,
        }

    def handle_from_network(self, message: Message) -> list[Message]:
        """The answers to a message of a server that is not trusted: it is answered, or is its fault."""
        try:
            return answers_from_network(self._handlers, message, self.client)
        except FileError as error:  # the half is as it was when it was loaded
            raise MessageError(
                f"client {self.client} cannot use the server's {type(message).__name__} ({error})"
            ) from error

    def _up(self, epochs: float) -> Codec:
        """The codec of smashed data, so many epochs into the run."""
        done = epochs / self._epochs + _ROUNDING
        return next(codec for until, codec in self.half.file.rates if done < until)

    def _begin(self, begin: BeginStep) -> Iterable[Message]:
        began = perf_counter()
        images, labels = self.batches.at(begin.epoch, begin.step)
        loaded = perf_counter()
        smashed = self.half.forward(images)
        forwarded = perf_counter()
        up = self._up(begin.epoch + begin.step / len(self.batches))
        frame = up.encode(smashed, seed=self._place("up", begin))
        encoded = perf_counter()
        error = 0.0 if up == _DENSE else math.nan
        if self._measures and up != _DENSE:
            error = relative_error(smashed, decode(frame, like="numpy"))
        times = {"data": loaded - began, "forward": forwarded - loaded, "encode": encoded - forwarded}
        self._open = OpenStep(begin, len(labels), error=error, **times)
        packed = pack_labels(labels, self._classes)
        return [Smashed(begin.number, frame), Labels(begin.number, packed, len(labels))]

    def _place(self, what: str, begin: BeginStep) -> int:
        return derive(f"codec/{what}", self._seed, self.client, begin.epoch, begin.step)

    def _on_gradient(self, message: Gradient) -> Iterable[Message]:
        step = step_of(message, self._open, self.client)
        expected = (step.samples, *self.half.file.shape)
        began = perf_counter()
        gradient = decode(message.body, max_elements=math.prod(expected), like="numpy")
        if gradient.dtype != np.float32 or gradient.shape != expected:
            raise MessageError(f"a gradient of {gradient.dtype} and shape {list(gradient.shape)} came back")
        decoded = perf_counter()
        self.half.backward(gradient)
        share = step.begin.share
        if share not in GRADIENTS:
            self.half.step(step.begin.lr)
        done = perf_counter()
        shares: list[Message] = []
        if share != Share.NOTHING:
            shares.append(self._share(share, message.number, step.begin))
        shared = perf_counter()
        self._open = None
        step.encode += shared - done
        step.decode = decoded - began
        step.backward = done - decoded
        return [*shares, step.report()]

    def _share(self, share: Share, number: int, begin: BeginStep | None) -> SyncUp:
        """What is asked for, under the sync codec; outside of a step as it is, for exact evaluation."""
        first, second = b"", b""
        if share != Share.BUFFERS:
            vector = self.half.gradient_vector() if share in GRADIENTS else flatten(self.half.weights)
            if begin is None or not vector.size:
                first = _plain(vector)
            elif self.feedback is not None:
                first = self.feedback.encode(vector, self._sync, self._place("sync-up", begin))
            else:
                first = self._sync.encode(vector, seed=self._place("sync-up", begin))
        if share != Share.GRADIENTS:
            second = _plain(flatten(self.half.buffers))
        return SyncUp(number, first + second, share, len(first))

    def _on_mean(self, message: SyncDown) -> Iterable[Message]:
        first, second = (
            (lambda frame=frame: decode(frame, max_elements=self._most, like="numpy")) if frame else None
            for frame in message.frames
        )
        if message.evaluation:
            state = dict(self.half.state)
            for names, made in ((self.half.file.parameters, first), (self.half.file.buffers, second)):
                if made is not None:
                    assign(state, names, made())
            self._evaluated = state
        elif message.share == Share.GRADIENTS:
            if first is not None:  # a half without weights has no gradients to share
                self.half.apply_mean(first, message.lr, message.number)
        else:
            if first is not None:
                self.half.load_weights(first())
            if second is not None:
                self.half.load_buffers(second())
        return ()

    def _on_evaluate(self, message: Evaluate) -> Iterable[Message]:
        if self.test is None:
            raise MessageError(f"client {self.client} has no test set to evaluate")
        if not 0 <= message.first < message.last <= len(self.test):
            raise MessageError(f"samples {message.first} to {message.last} of a test set of {len(self.test)}")
        images = normalized(self.test.images[message.first : message.last], self.batches.form)
        labels = self.test.labels[message.first : message.last]
        frame = (
            self.half.file.rates[-1][1].deterministic().encode(self.half.evaluate(images, self._evaluated))
        )
        packed = pack_labels(labels, self._classes)
        return [Smashed(message.number, frame), Labels(message.number, packed, len(labels))]

    def _on_state(self, message: State) -> Iterable[Message]:
        self._open = None
        try:
            state = safetensors.numpy.load(message.body)
        except (SafetensorError, ValueError, KeyError) as error:
            raise MessageError(f"a damaged State message: {error}") from None
        self.half.restore(state, message.number)
        if self.feedback is not None:
            self.feedback.restore(state.get(f"{_OWN}memory"))
        return ()

    def _on_ask(self, message: Ask) -> Iterable[Message]:
        if message.share not in (Share.STATE, Share.OWN):
            return [self._share(message.share, message.number, None)]
        state = {} if self.feedback is None else {f"{_OWN}memory": self.feedback.residual}
        if message.share == Share.STATE:
            state |= self.half.full_state()
        arrays = {name: np.ascontiguousarray(value).reshape(value.shape) for name, value in state.items()}
        return [State(message.number, safetensors.numpy.save(arrays))]


def _plain(vector: Any) -> bytes:
    return _DENSE.encode(vector) if vector.size else b""


def pack_labels(labels: Any, classes: int) -> bytes:
    """Labels as `tasks.base` packs them: in as few bits as the number of classes needs."""
    return pack_bits(labels.astype(np.uint64), max(1, (classes - 1).bit_length()))


def relative_error(x: Any, y: Any) -> float:
    """||x - y||^2 / ||x||^2; 0 if both are zero, infinite if only x is."""
    lost, whole = float(np.linalg.norm(x - y)) ** 2, float(np.linalg.norm(x)) ** 2
    return lost / whole if whole else (0.0 if lost == 0 else math.inf)
