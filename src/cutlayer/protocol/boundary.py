"""The boundary: all that comes from a client is received and checked here, in every phase.

A step, an evaluation, a checkpoint, an admission and the aggregator ask for a message of a kind; what they
get is of that kind and number, decodes, has the shape, type and size that were agreed, and finite numbers
that can be. Anything else is the client's fault, and one rule holds for it: the client is told why and
disconnected (`Transport.fault`). In one process, where the client is our own code, the error is raised; under
`wait` the run goes back to its last checkpoint (RollbackError); under `drop` the client is out (AbsentError)
and the others go on. No message ends the server.
"""

import math
import operator
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import NoReturn, TypeVar

import torch
from torch import Tensor

from cutlayer.errors import AbsentError, FrameError, LimitError, MessageError, RollbackError
from cutlayer.protocol.run_codecs import RunCodecs
from cutlayer.protocol.state_bytes import OWN, from_bytes
from cutlayer.protocol.state_form import StateForm
from cutlayer.protocol.tensor_forms import Forms, check_number, check_values, describe, misfit, most_elements
from cutlayer.split.tensors import Tensors, apply, tensors_of
from cutlayer.tasks import Task
from cutlayer.tasks.classification import Classification
from cutlayer.wire.messages.base import Message
from cutlayer.wire.messages.scores import Scores, Sums
from cutlayer.wire.messages.types import (
    Gradient,
    Labels,
    Placeholder,
    Report,
    Share,
    Smashed,
    State,
    SyncUp,
)
from cutlayer.wire.transport import Transport

M = TypeVar("M", bound=Message)
Decode = Callable[[bytes], Tensor]

# What computing on a tensor or a number from somebody else may raise.
_UNUSABLE = (ArithmeticError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)

# No stage of a step takes longer, in seconds, and no loss of a batch is larger.
_LONGEST_STAGE, _LARGEST = 1e7, 1e12
_STAGES = ("data", "forward", "encode", "decode", "backward")
_times = operator.attrgetter(*_STAGES)


@dataclass(frozen=True)
class Agreed:
    """What both ends have derived alike, so that a client's messages can be held against it.

    Shapes are those of one sample; where several tensors cross a cut, each has one by its name, and a dtype.
    None where it is not known, as in one process.
    """

    smashed: Forms | None = None
    tail_gradient: Forms | None = None
    """U-shape: the gradient at the second cut."""
    dtype: torch.dtype = torch.float32
    state: StateForm | None = None
    clip_smashed: float = 0.0
    """Smashed data are clipped to this magnitude; 0: they are taken as they come."""
    loss_at_client: bool = False
    """U-shape: the loss comes with a client's report."""


class Boundary:
    """Takes clients' messages from a transport, and believes none of them.

    `shares` is what arrives where a client shares gradients or weights: those (SyncUp), or the word that
    they travel another way (Placeholder). Inside `decoding()` frames become tensors, so that their time can
    be told from that of waiting.
    """

    def __init__(
        self,
        transport: Transport,
        codecs: RunCodecs,
        agreed: Agreed,
        task: Task | None = None,
        shares: type[SyncUp | Placeholder] = SyncUp,
        decoding: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._transport = transport
        self._codecs = codecs
        self._agreed = agreed
        self._task = task
        self._shares = shares
        self._decoding = decoding

    def through(self, transport: Transport) -> "Boundary":
        """The same checks, of messages that come another way."""
        return Boundary(transport, self._codecs, self._agreed, self._task, self._shares, self._decoding)

    def batch(
        self, client: int, number: int, samples: int, decode: Decode | None = None
    ) -> tuple[Tensors, Tensor, tuple[int, int]]:
        """Smashed data of so many samples, their targets, and the bytes that each took.

        `decode`: smashed data are no plain frames; it gives those of so many samples, of the agreed form.
        """
        message = self.receive(client, number, Smashed)
        labels = self.receive(client, number, Labels)
        with self.blame(client), self._decoding():
            if self._task is None:
                raise MessageError("targets where none are expected")
            if labels.count != samples:  # before anything of that size is made
                raise MessageError(f"{labels.count} labels for {samples} samples")
            smashed = self._tensors(message, self._agreed.smashed, samples, decode)
            targets = self._task.unpack(labels.body, labels.count)
            if self._codecs.max_value is not None and targets.is_floating_point():
                check_values(targets, self._codecs.max_value, "targets")
        return smashed, targets, (message.size, labels.size)

    def tensor(
        self,
        client: int,
        number: int,
        kind: type[Smashed | Gradient],
        samples: int,
        decode: Decode | None = None,
    ) -> tuple[Tensors, int]:
        """Smashed data or a gradient of so many samples, and the bytes it took. `decode`: see `batch`."""
        message = self.receive(client, number, kind)
        agreed = self._agreed.smashed if kind is Smashed else self._agreed.tail_gradient
        with self.blame(client), self._decoding():
            return self._tensors(message, agreed, samples, decode), message.size

    def shared(self, client: int, number: int, share: Share) -> SyncUp | Placeholder:
        """What a client shares, not decoded yet."""
        message: SyncUp | Placeholder = self.receive(client, number, self._shares)
        if isinstance(message, SyncUp):
            with self.blame(client):
                if message.share != share:
                    raise MessageError(f"shared {message.share.name} instead of {share.name}")
        return message

    def check_shared(self, client: int, message: Message) -> None:
        """What a client shared decodes to finite vectors of this model, before it can spoil a mean."""
        if isinstance(message, SyncUp):
            with self.blame(client):
                self._codecs.decode_shared(message, client)

    def report(self, client: int, number: int, samples: int) -> Report:
        """What a client says at the end of its step of so many samples."""
        report = self.receive(client, number, Report)
        with self.blame(client):
            if report.samples != samples:
                raise MessageError(f"a report of {report.samples} samples, where {samples} were planned")
            for stage, seconds in zip(_STAGES, _times(report), strict=True):
                if not 0.0 <= seconds <= _LONGEST_STAGE:  # words are made only if they are needed
                    check_number(seconds, f"the time of {stage}", high=_LONGEST_STAGE)
            if self._agreed.loss_at_client:
                check_number(report.loss, "the loss", low=-_LARGEST, high=_LARGEST)
            if not (math.isnan(report.error) or 0.0 <= report.error < math.inf):  # NaN: not measured
                check_number(report.error, "the compression error")
        return report

    def scores(self, client: int, number: int, samples: int) -> Sequence[float]:
        """U-shape: how the evaluator's tail did on a test batch of so many samples, as sums of the task."""
        if self._task is None:
            raise MessageError("scores where none are expected")
        if not isinstance(self._task, Classification):
            return self._sums(self._task, client, number, samples)
        scores = self.receive(client, number, Scores)
        with self.blame(client):
            if not 0 <= scores.top1 <= scores.top5 <= scores.samples == samples:
                raise MessageError(
                    f"{scores.top1} and {scores.top5} right of {scores.samples}, where {samples} were asked"
                )
            check_number(scores.loss, "the summed test loss", low=-_LARGEST, high=_LARGEST)
        return scores.loss, scores.top1, scores.top5

    def _sums(self, task: Task, client: int, number: int, samples: int) -> Sequence[float]:
        message = self.receive(client, number, Sums)
        with self.blame(client):
            if message.samples != samples:
                raise MessageError(f"sums of {message.samples} samples, where {samples} were asked")
            if len(message.body) != 8 * len(task.sum_names):  # before a list of that size is made
                raise MessageError(
                    f"{len(message.body)} bytes of sums; the {len(task.sum_names)} sums of this task take "
                    f"{8 * len(task.sum_names)}"
                )
            task.check_sums(message.values, samples)
        return message.values

    def state(self, client: int, number: int, *, complete: bool = True) -> dict[str, Tensor]:
        """What a client has learned, by name; with `complete`, all of it and not only what is its own."""
        message = self.receive(client, number, State)
        with self.blame(client):
            state = from_bytes(message.body)
            if self._agreed.state is not None:
                self._agreed.state.check(state, complete=complete, max_value=self._codecs.max_value)
            if not complete and any(not name.startswith(OWN) for name in state):
                raise MessageError("a state with more than what is the client's own")
            return state

    def buffers(self, client: int, number: int) -> Tensor | None:
        """A client's batch-norm statistics; None if its half has none."""
        message = self.receive(client, number, SyncUp)
        with self.blame(client):
            if message.share != Share.BUFFERS:
                raise MessageError(f"shared {message.share.name} instead of {Share.BUFFERS.name}")
            return self._codecs.decode_shared(message, client)[1]

    def receive(self, client: int, number: int, kind: type[M]) -> M:
        """A client's next message, which has to be of that kind and number.

        Under `drop` it is waited for until the deadline. What it holds is not looked at here.
        """
        if not self._transport.patient and not self._transport.present([client], 1, at_least=0):
            raise AbsentError(f"{self._transport.label(client)} did not answer in time")
        try:
            message = self._transport.receive(client)
        except AbsentError:
            raise
        except MessageError as error:
            self._fault(client, error)
        if type(message) is not kind or message.number != number:
            with self.blame(client):
                raise MessageError(
                    f"sent a {type(message).__name__} of step {message.number}; expected a {kind.__name__} "
                    f"of step {number}"
                )
        return message

    @property
    def trusts(self) -> bool:
        """Whether clients are our own code, in this process."""
        return self._agreed.smashed is None

    def blame(self, client: int) -> AbstractContextManager[None]:
        """What goes wrong inside is the client's fault: put here only what works on what it sent."""
        return _Blame(self._fault, client)

    def _fault(self, client: int, error: Exception) -> NoReturn:
        named = MessageError(f"{self._transport.label(client)}: {error}")
        named.__cause__ = error
        self._transport.fault(client, named)
        raise AbsentError(str(named)) from error

    def _tensors(
        self, message: Smashed | Gradient, agreed: Forms | None, samples: int, decode: Decode | None = None
    ) -> Tensors:
        """What a message holds, if it has the form that was agreed on."""
        what = "smashed data" if isinstance(message, Smashed) else "a gradient"
        found: Tensors
        if decode is not None:
            found = decode(message.body).to(self._codecs.device)
        elif agreed is None:
            found = self._codecs.decode_cut(message.body)
            if any(len(tensor) != samples for tensor in tensors_of(found)):
                raise MessageError(f"{what}: its batch of step {message.number} has {samples} samples")
        else:
            found = self._agreed_tensors(message, agreed, samples, what)
        if self._codecs.max_value is not None:
            for tensor in tensors_of(found):
                check_values(tensor, self._codecs.max_value, what)
        clip = self._agreed.clip_smashed
        if clip and isinstance(message, Smashed):
            return apply(lambda t: t.clamp(-clip, clip) if t.is_floating_point() else t, found)
        return found

    def _agreed_tensors(self, message: Smashed | Gradient, agreed: Forms, samples: int, what: str) -> Tensors:
        dtype = self._agreed.dtype

        def wanted() -> str:
            return f"its batch of step {message.number} has {describe(agreed, samples, dtype)}"

        try:
            found = self._codecs.decode_cut(message.body, most_elements(agreed, samples))
        except LimitError as error:
            raise MessageError(f"{what}: {str(error).partition(';')[0]}; {wanted()}") from error
        wrong = misfit(found, agreed, samples, dtype)
        if wrong is not None:
            raise MessageError(f"{what} of {wrong}; {wanted()}")
        return found


class _Blame(AbstractContextManager[None]):
    """Hands whatever goes wrong inside to `fault`. A class, because a generator takes twice as long."""

    __slots__ = ("_client", "_fault")

    def __init__(self, fault: Callable[[int, Exception], NoReturn], client: int) -> None:
        self._fault, self._client = fault, client

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, (AbsentError, RollbackError)):
            return
        if isinstance(error, (MessageError, FrameError)):
            self._fault(self._client, error)
        if isinstance(error, _UNUSABLE):
            self._fault(
                self._client, MessageError(f"what it sent cannot be used ({type(error).__name__}: {error})")
            )
