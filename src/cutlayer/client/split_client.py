"""A client at work: answers the server's messages with its private data and its half of the model.

It never begins anything by itself. Whoever carries the messages, a loopback in the same process or a
connection, hands each one to `handle` and takes the answers.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from time import perf_counter

from torch import Tensor

from cutlayer.client.evaluator import Evaluator
from cutlayer.data import Augment, DataSource, Inputs, Sampler
from cutlayer.errors import MessageError
from cutlayer.protocol.build import vector_sizes
from cutlayer.protocol.client_memory import ClientMemory
from cutlayer.protocol.run_codecs import ErrorFeedback, RunCodecs
from cutlayer.protocol.state_bytes import OWN, from_bytes, to_bytes
from cutlayer.protocol.tensor_forms import Forms, most_elements
from cutlayer.rates.base import Rate
from cutlayer.seeding import seeded, undisturbed
from cutlayer.seeds import derive
from cutlayer.split.client import ClientHalf
from cutlayer.split.state import client_state, restore_client, under
from cutlayer.split.tensors import (
    Tensors,
    elements,
    floats,
    gradient_elements,
    lost_share,
    pulled,
    relative_error,
    to_device,
)
from cutlayer.tasks import Task
from cutlayer.wire.messages.base import Message
from cutlayer.wire.messages.client_steps import Handlers, OpenStep, answers, answers_from_network, step_of
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


@dataclass(slots=True, kw_only=True)
class _OpenStep(OpenStep):
    """A step that has begun, with the targets of its batch."""

    targets: Tensor
    elements: Mapping[str, int] | int
    """How many the gradient of the smashed data has."""
    lost: Tensors | None = None
    """What compression changed in the smashed data, relative to their norm: the commitment's direction."""


class SplitClient:
    """One client: number `client` of the run."""

    def __init__(
        self,
        client: int,
        half: ClientHalf,
        task: Task,
        codecs: RunCodecs,
        train: DataSource,
        sampler: Sampler,
        augment: Augment,
        *,
        evaluator: Evaluator | None = None,
        rate: Rate | None = None,
        features: Forms | None = None,
        memory: ClientMemory | None = None,
    ) -> None:
        """`evaluator` has the test set, if this client has one. `rate` chooses the codec of smashed data.

        `features` are the forms of a server's activations in a U-shape, where it is not trusted. `memory`:
        smashed data travel as what has changed since a sample's last visit.
        """
        self.client = client
        self.half = half
        self.task = task
        self.codecs = codecs
        self.train = train
        self.sampler = sampler
        self.augment = augment
        self.evaluator = evaluator
        self.rate = rate or Rate(codecs.up)
        self._features = features
        self._memory = memory
        self._open: _OpenStep | None = None
        self._sizes = vector_sizes(half)
        self.feedback = ErrorFeedback(self._sizes[0]) if codecs.feeds_back and self._sizes[0] else None
        self._handlers: Handlers = {
            BeginStep: self._begin,
            Smashed: self._on_features,
            Gradient: self._on_gradient,
            SyncDown: self._on_mean,
            Ask: self._on_ask,
            Evaluate: self._on_evaluate,
            State: self._on_state,
        }

    def handle(self, message: Message) -> Iterable[Message]:
        """The answers to a message from the server."""
        return answers(self._handlers, message, self.client)

    def handle_from_network(self, message: Message) -> list[Message]:
        """As `handle`, for a server that is not trusted: whatever it sends is answered, or is its fault."""
        return answers_from_network(self._handlers, message, self.client)

    def batch(self, epoch: int, step: int) -> tuple[Inputs, Tensor]:
        """The augmented inputs and the targets of a step."""
        inputs, targets = self.train.batch(self.sampler.batch(epoch, step))
        inputs = self.augment.train(
            inputs, seed=self.sampler.seed, client=self.client, epoch=epoch, step=step
        )
        device = self.half.model.device
        return to_device(inputs, device), targets.to(device)

    def own_state(self) -> dict[str, Tensor]:
        """What only this client has, even where all share one model. The server knows its memory, too."""
        return {
            **({} if self.feedback is None else {"memory": self.feedback.residual}),
            **self.rate.state(),
        }

    def restore_own(self, state: Mapping[str, Tensor]) -> None:
        """Continue from what `own_state` gave; from nothing if there is nothing."""
        if self.feedback is not None:
            self.feedback.restore(state.get("memory"))
        self.rate.restore(state)
        if self._memory is not None:
            self._memory.restore(state)

    def _begin(self, begin: BeginStep) -> Iterable[Message]:
        place = (self.client, begin.epoch, begin.step)
        began = perf_counter()
        inputs, targets = self.batch(begin.epoch, begin.step)
        loaded = perf_counter()
        # Dropout and the like: where in the run they are decides what they draw.
        with seeded(derive("client", self.sampler.seed, *place), self.half.model.device):
            smashed = self.half.forward(inputs)
        forwarded = perf_counter()
        count = elements(floats(smashed))
        up = self.rate.choose(count, begin.epoch + begin.step / len(self.sampler))
        if self._memory is not None and not isinstance(smashed, dict):
            frame = self._memory.encode(smashed, begin.epoch, begin.step)
        else:
            frame = self.codecs.encode(up, smashed, "up", *place)
        self.rate.sent(len(frame), count)
        encoded = perf_counter()
        wanted = gradient_elements(smashed)
        self._open = step = _OpenStep(begin, len(targets), targets=targets, elements=wanted)
        step.error = 0.0 if self.codecs.exact else math.nan
        step.data, step.forward, step.encode = loaded - began, forwarded - loaded, encoded - forwarded
        commits = self.codecs.commitment > 0 and not self.codecs.exact
        if self.codecs.measures or commits:
            decoded = self._decoded(frame, smashed, begin)
            step.error = relative_error(smashed, decoded)
            step.lost = lost_share(smashed, decoded) if commits else None
        if self.half.model.tail is not None:
            return [Smashed(begin.number, frame)]
        return [
            Smashed(begin.number, frame),
            Labels(begin.number, self.task.pack(targets.cpu()), len(targets)),
        ]

    def _decoded(self, frame: bytes, smashed: Tensors, begin: BeginStep) -> Tensors:
        """What the server makes of the smashed data."""
        if self._memory is not None:
            return self._memory.recall(begin.epoch, begin.step).to(self.half.model.device)
        return self.codecs.decode_cut(frame, elements(smashed))

    def _on_features(self, message: Smashed) -> Iterable[Message]:
        """U-shape: the server's activations, which the tail turns into the loss."""
        if self.evaluator is not None and self.evaluator.awaits(message.number):
            return [self.evaluator.score(message)]
        step = step_of(message, self._open, self.client)
        place = (self.client, step.begin.epoch, step.begin.step)
        began = perf_counter()
        most = most_elements(self._features, len(step.targets))
        features = self.codecs.decode_cut(message.body, most)
        decoded = perf_counter()
        with seeded(derive("tail", self.sampler.seed, *place), self.half.model.device):
            loss, gradient = self.half.finish_forward(features, step.targets, self.task.loss)
        step.loss = float(loss)
        forwarded = perf_counter()
        frame = self.codecs.encode(self.rate.codec, gradient, "up-gradient", *place)
        step.decode += decoded - began
        step.forward += forwarded - decoded
        step.encode += perf_counter() - forwarded
        return [Gradient(message.number, frame)]

    def _on_gradient(self, message: Gradient) -> Iterable[Message]:
        step = step_of(message, self._open, self.client)
        began = perf_counter()
        gradient = self.codecs.decode_cut(message.body, step.elements)
        if step.lost is not None:
            gradient = pulled(gradient, step.lost, self.codecs.commitment)
        decoded = perf_counter()
        with undisturbed():
            self.half.backward(gradient)
        share = step.begin.share
        if share not in GRADIENTS:
            self.half.step(step.begin.lr)
        shares: list[Message] = []
        done = perf_counter()
        if share != Share.NOTHING:
            shares.append(self._share(share, message.number, (step.begin.epoch, step.begin.step)))
        shared = perf_counter()
        self._open = None
        step.encode += shared - done
        step.decode += decoded - began
        step.backward = done - decoded
        report = step.report()
        work = report.data + report.forward + report.encode + report.decode + report.backward
        self.rate.worked(report.samples, work)
        return [*shares, report]

    def _on_mean(self, message: SyncDown) -> Iterable[Message]:
        first, second = message.frames
        most, most_buffers = self._sizes
        if message.evaluation:
            weights = self.codecs.decode(first, most) if first else self.half.weight_vector()
            buffers = self.codecs.decode(second, most_buffers) if second else self.half.buffer_vector()
            self._evaluator().load(weights, buffers)
        elif message.share == Share.GRADIENTS:
            # A half without weights has no gradients to share.
            if not first:
                return ()
            self.half.apply_mean(lambda: self.codecs.decode(first, most), message.lr, message.number)
        else:
            if first and message.share == Share.DIFFERENCES:
                self.half.add_differences(self.codecs.decode(first, most))
            elif first:
                self.half.load_weights(self.codecs.decode(first, most))
            if second:
                self.half.load_buffers(self.codecs.decode(second, most_buffers))
        return ()

    def _on_state(self, message: State) -> Iterable[Message]:
        self._open = None
        state = from_bytes(message.body)
        restore_client(self.half, state, message.number)
        self.restore_own(under(OWN, state))
        return ()

    def _on_ask(self, message: Ask) -> Iterable[Message]:
        if message.share in (Share.STATE, Share.OWN):
            state = {f"{OWN}{name}": tensor for name, tensor in self.own_state().items()}
            if message.share == Share.STATE:
                state |= client_state(self.half)
            return [State(message.number, to_bytes(state))]
        return [self._share(message.share, message.number, None)]

    def _on_evaluate(self, message: Evaluate) -> Iterable[Message]:
        return self._evaluator().begin(message)

    def _evaluator(self) -> Evaluator:
        if self.evaluator is None:
            raise MessageError(f"client {self.client} has no test set to evaluate")
        return self.evaluator

    def _share(self, share: Share, number: int, place: tuple[int, int] | None) -> SyncUp:
        """What is asked for, under the sync codec; outside of a step as it is, for exact evaluation."""
        first, second = b"", b""
        if share != Share.BUFFERS:
            vector = self._vector(share)
            if place is None or not vector.numel():
                first = self.codecs.plain(vector)
            else:
                first = self.codecs.encode_shared(self.feedback, vector, "sync-up", self.client, *place)
        if share != Share.GRADIENTS:
            # Means and variances stay exact: a variance that a lossy codec made negative is the end.
            second = self.codecs.plain(self.half.buffer_vector())
        return SyncUp(number, first + second, share, len(first))

    def _vector(self, share: Share) -> Tensor:
        if share in GRADIENTS:
            return self.half.gradient_vector()
        return self.half.differences() if share == Share.DIFFERENCES else self.half.weight_vector()
