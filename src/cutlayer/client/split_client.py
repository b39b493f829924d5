"""A client at work: answers the server's messages with its private data and its half of the model.

It never begins anything by itself. Whoever carries the messages, a loop in the same process or a
connection, hands each one to `handle` and takes the answers.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from cutlayer.client.evaluator import Examiner
from cutlayer.config.schema import Config
from cutlayer.data import Augment, Dataset, Sampler
from cutlayer.data.federated import FederatedData
from cutlayer.data.seeds import derive
from cutlayer.errors import MessageError
from cutlayer.protocol.error_feedback import Memory
from cutlayer.protocol.run_codecs import Crossings
from cutlayer.protocol.state_bytes import from_bytes, to_bytes
from cutlayer.rates.base import Rate
from cutlayer.split.client import ClientHalf
from cutlayer.split.layer import relative_error
from cutlayer.split.state import client_state, restore_client, under
from cutlayer.wire.messages import labels as packing
from cutlayer.wire.messages.types import (
    Ask,
    Evaluate,
    Gradient,
    Labels,
    Message,
    Report,
    Share,
    Smashed,
    State,
    SyncDown,
    SyncUp,
    Turn,
)

#: How the names of tensors in a client's state begin that are its own even where clients share a model.
OWN = "own."


@dataclass(slots=True)
class _Open:
    """A turn that has begun."""

    turn: Turn
    labels: Tensor
    loss: float = math.nan
    error: float = math.nan
    data: float = 0.0
    forward: float = 0.0
    encode: float = 0.0
    decode: float = 0.0
    backward: float = 0.0


class Worker:
    """One client."""

    def __init__(
        self,
        client: int,
        half: ClientHalf,
        train: Dataset,
        sampler: Sampler,
        augment: Augment,
        crossings: Crossings,
        examiner: Examiner | None = None,
        rate: Rate | None = None,
    ) -> None:
        self.client = client
        self.half = half
        self.train = train
        self.sampler = sampler
        self.augment = augment
        self.crossings = crossings
        self.examiner = examiner
        self.rate = rate or Rate(crossings.up)
        self._open: _Open | None = None
        elements = sum(p.numel() for p in half.model.parameters)
        self.memory = Memory(elements) if crossings.feedback and elements else None
        self._handlers: dict[type[Message], Callable[..., Iterable[Message]]] = {
            Turn: self._begin,
            Smashed: self._on_features,
            Gradient: self._on_gradient,
            SyncDown: self._on_mean,
            Ask: self._on_ask,
            Evaluate: self._on_evaluate,
            State: self._on_state,
        }

    @classmethod
    def build(
        cls,
        config: Config,
        data: FederatedData,
        client: int,
        half: ClientHalf,
        *,
        evaluator: bool = False,
        rate: Rate | None = None,
    ) -> "Worker":
        """The client of that number. Of all data it keeps its own part, and the test set as evaluator."""
        train = config.train
        crossings = Crossings(config.codec, config.seed)
        sampler = Sampler(
            data.parts[client],
            train.batch_size,
            seed=config.seed,
            client=client,
            drop_last=train.drop_last,
        )
        examiner = Examiner(half, data.test, data.augment, crossings) if evaluator else None
        return cls(client, half, data.train, sampler, data.augment, crossings, examiner, rate)

    def handle(self, message: Message) -> Iterable[Message]:
        """The answers to a message from the server."""
        handler = self._handlers.get(type(message))
        if handler is None:
            raise MessageError(f"client {self.client} has no use for a {type(message).__name__}")
        return handler(message)

    def batch(self, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        """The augmented images and the labels of a step."""
        indices = self.sampler.batch(epoch, step)
        images = self.augment.train(
            self.train.images[indices], seed=self.sampler.seed, client=self.client, epoch=epoch, step=step
        )
        return images, self.train.labels[indices]

    def _begin(self, turn: Turn) -> Iterable[Message]:
        place = (self.client, turn.epoch, turn.step)
        began = perf_counter()
        images, labels = self.batch(turn.epoch, turn.step)
        loaded = perf_counter()
        # Dropout and the like: where in the run they are decides what they draw.
        torch.default_generator.manual_seed(derive("client", self.sampler.seed, *place))
        smashed = self.half.forward(images)
        forwarded = perf_counter()
        up = self.rate.choose(smashed.numel(), turn.epoch + turn.step / len(self.sampler))
        frame = self.crossings.encode(up, smashed, "up", *place)
        self.rate.sent(len(frame), smashed.numel())
        encoded = perf_counter()
        self._open = state = _Open(turn, labels, error=0.0 if self.crossings.exact else math.nan)
        state.data, state.forward, state.encode = loaded - began, forwarded - loaded, encoded - forwarded
        if self.crossings.measure:
            state.error = relative_error(smashed, self.crossings.decode(frame))
        if self.half.model.tail is not None:
            return [Smashed(turn.number, frame)]
        packed = packing.pack(labels.numpy(), self.train.classes)
        return [Smashed(turn.number, frame), Labels(turn.number, packed, len(labels))]

    def _on_features(self, message: Smashed) -> Iterable[Message]:
        """U-shape: the server's activations, which the tail turns into the loss."""
        if self.examiner is not None and self.examiner.awaits(message.number):
            return [self.examiner.score(message)]
        state = self._current(message)
        place = (self.client, state.turn.epoch, state.turn.step)
        began = perf_counter()
        features = self.crossings.decode(message.body)
        decoded = perf_counter()
        torch.default_generator.manual_seed(derive("tail", self.sampler.seed, *place))
        loss, gradient = self.half.finish_forward(features, state.labels)
        state.loss = float(loss)
        forwarded = perf_counter()
        frame = self.crossings.encode(self.rate.codec, gradient, "up-gradient", *place)
        state.decode += decoded - began
        state.forward += forwarded - decoded
        state.encode += perf_counter() - forwarded
        return [Gradient(message.number, frame)]

    def _on_gradient(self, message: Gradient) -> Iterable[Message]:
        state = self._current(message)
        began = perf_counter()
        gradient = self.crossings.decode(message.body)
        decoded = perf_counter()
        self.half.backward(gradient)
        share = state.turn.share
        if share != Share.GRADIENTS:
            self.half.step(state.turn.lr)
        answers: list[Message] = []
        done = perf_counter()
        if share != Share.NOTHING:
            answers.append(self._share(share, message.number, (state.turn.epoch, state.turn.step)))
        shared = perf_counter()
        self._open = None
        report = Report(
            message.number,
            samples=len(state.labels),
            loss=state.loss,
            error=state.error,
            data=state.data,
            forward=state.forward,
            encode=state.encode + shared - done,
            decode=state.decode + decoded - began,
            backward=done - decoded,
        )
        work = report.data + report.forward + report.encode + report.decode + report.backward
        self.rate.worked(report.samples, work)
        return [*answers, report]

    def _on_mean(self, message: SyncDown) -> Iterable[Message]:
        first, second = message.frames
        if message.evaluation:
            if self.examiner is None:
                raise MessageError(f"client {self.client} has no test set to evaluate")
            weights = self.crossings.decode(first) if first else self.half.weight_vector()
            buffers = self.crossings.decode(second) if second else self.half.buffer_vector()
            self.examiner.load(weights, buffers)
        elif message.share == Share.GRADIENTS:
            # A half without weights has no gradients to share.
            if not first:
                return ()
            self.half.apply_mean(lambda: self.crossings.decode(first), message.lr, message.number)
        else:
            if first:
                self.half.load_weights(self.crossings.decode(first))
            if second:
                self.half.load_buffers(self.crossings.decode(second))
        return ()

    def _on_state(self, message: State) -> Iterable[Message]:
        self._open = None
        state = from_bytes(message.body)
        restore_client(self.half, state, message.number)
        self.restore_own(under(OWN, state))
        return ()

    def own_state(self) -> dict[str, Tensor]:
        """What only this client has, even where all share one model."""
        return {
            **({} if self.memory is None else {"memory": self.memory.rest}),
            **self.rate.state(),
        }

    def restore_own(self, state: Mapping[str, Tensor]) -> None:
        """Continue from what `own_state` gave; from nothing if there is nothing."""
        if self.memory is not None:
            self.memory.restore(state.get("memory"))
        self.rate.restore(state)

    def _on_ask(self, message: Ask) -> Iterable[Message]:
        if message.share in (Share.STATE, Share.OWN):
            state = {f"{OWN}{name}": tensor for name, tensor in self.own_state().items()}
            if message.share == Share.STATE:
                state |= client_state(self.half)
            return [State(message.number, to_bytes(state))]
        return [self._share(message.share, message.number, None)]

    def _on_evaluate(self, message: Evaluate) -> Iterable[Message]:
        if self.examiner is None:
            raise MessageError(f"client {self.client} has no test set to evaluate")
        return self.examiner.begin(message)

    def _share(self, share: Share, number: int, place: tuple[int, int] | None) -> SyncUp:
        """What is asked for, under the sync codec; outside of a turn as it is, for exact evaluation."""
        first, second = b"", b""
        if share != Share.BUFFERS:
            gradients = share == Share.GRADIENTS
            vector = self.half.gradient_vector() if gradients else self.half.weight_vector()
            if place is None or not vector.numel():
                first = self.crossings.plain(vector)
            else:
                first = self.crossings.encode_shared(self.memory, vector, "sync-up", self.client, *place)
        if share != Share.GRADIENTS:
            # Means and variances stay exact: a variance that a lossy codec made negative is the end.
            second = self.crossings.plain(self.half.buffer_vector())
        return SyncUp(number, first + second, share, len(first))

    def _current(self, message: Message) -> _Open:
        if self._open is None or self._open.turn.number != message.number:
            raise MessageError(
                f"client {self.client}: a {type(message).__name__} of step {message.number}, which is not "
                "the step in progress"
            )
        return self._open
