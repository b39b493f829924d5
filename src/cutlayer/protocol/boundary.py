"""The boundary: all that comes from a client is received and checked here, in every phase.

A step, an evaluation, a checkpoint, an admission and the aggregator ask for a message of a kind; what they
get is of that kind and of that number, decodes, and has the size that was agreed. Anything else is the
client's fault, and one rule holds for it: the client is told why and disconnected (`Transport.fault`). In one
process, where the client is our own code, the error is raised; under `wait` the run goes back to its last
checkpoint (RollbackError); under `drop` the client is out (AbsentError) and the others go on.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

from torch import Tensor

from cutlayer.errors import AbsentError, FrameError, MessageError
from cutlayer.protocol.run_codecs import RunCodecs
from cutlayer.protocol.state_bytes import from_bytes
from cutlayer.tasks.base import Task
from cutlayer.wire.messages.types import (
    Gradient,
    Labels,
    Message,
    Placeholder,
    Report,
    Scores,
    Share,
    Smashed,
    State,
    SyncUp,
)
from cutlayer.wire.transport import Transport

M = TypeVar("M", bound=Message)


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
        task: Task | None = None,
        shares: type[SyncUp | Placeholder] = SyncUp,
        decoding: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._transport = transport
        self._codecs = codecs
        self._task = task
        self._shares = shares
        self._decoding = decoding

    def batch(self, client: int, number: int, samples: int) -> tuple[Tensor, Tensor, tuple[int, int]]:
        """Smashed data of so many samples, their targets, and the bytes that each took."""
        message = self.receive(client, number, Smashed)
        labels = self.receive(client, number, Labels)
        with self.blame(client), self._decoding():
            if self._task is None:
                raise MessageError("targets where none are expected")
            smashed = self._tensor(client, message, number, samples)
            targets = self._task.unpack(labels.body, labels.count)
            if len(targets) != len(smashed):
                raise MessageError(
                    f"{self._transport.label(client)}: {len(targets)} labels for {len(smashed)} samples"
                )
        return smashed, targets, (message.size, labels.size)

    def tensor(
        self, client: int, number: int, kind: type[Smashed | Gradient], samples: int
    ) -> tuple[Tensor, int]:
        """Smashed data or a gradient of so many samples, and the bytes that it took."""
        message = self.receive(client, number, kind)
        with self.blame(client), self._decoding():
            return self._tensor(client, message, number, samples), message.size

    def shared(self, client: int, number: int, share: Share) -> SyncUp | Placeholder:
        """What a client shares, not decoded yet."""
        message: SyncUp | Placeholder = self.receive(client, number, self._shares)
        if isinstance(message, SyncUp) and message.share != share:
            with self.blame(client):
                raise MessageError(
                    f"{self._transport.label(client)} shared {message.share.name} instead of {share.name}"
                )
        return message

    def check_shared(self, client: int, message: Message) -> None:
        """What a client shared decodes to the vectors of this model, before it can spoil a mean."""
        if isinstance(message, SyncUp):
            with self.blame(client):
                self._codecs.decode_shared(message, client)

    def report(self, client: int, number: int) -> Report:
        """What a client says at the end of its step."""
        return self.receive(client, number, Report)

    def scores(self, client: int, number: int) -> Scores:
        """U-shape: how the evaluator's tail did on a test batch."""
        return self.receive(client, number, Scores)

    def state(self, client: int, number: int) -> dict[str, Tensor]:
        """What a client has learned, by name."""
        message = self.receive(client, number, State)
        with self.blame(client):
            return from_bytes(message.body)

    def buffers(self, client: int, number: int) -> Tensor | None:
        """A client's batch-norm statistics; None if its half has none."""
        message = self.receive(client, number, SyncUp)
        with self.blame(client):
            return self._codecs.decode_shared(message, client)[1]

    def receive(self, client: int, number: int, kind: type[M]) -> M:
        """A client's next message, which has to be of that kind and number."""
        with self.blame(client):
            message = self._transport.receive(client)
            if type(message) is not kind or message.number != number:
                raise MessageError(
                    f"{self._transport.label(client)} sent a {type(message).__name__} of step "
                    f"{message.number}; expected a {kind.__name__} of step {number}"
                )
        return message

    @contextmanager
    def blame(self, client: int) -> Iterator[None]:
        """What goes wrong inside is the client's fault."""
        try:
            yield
        except AbsentError:
            raise
        except (MessageError, FrameError) as error:
            self._transport.fault(client, error)
            raise AbsentError(str(error)) from error

    def _tensor(self, client: int, message: Smashed | Gradient, number: int, samples: int) -> Tensor:
        tensor = self._codecs.decode(message.body)
        if not tensor.dim() or len(tensor) != samples:
            raise MessageError(
                f"{self._transport.label(client)} sent {type(message).__name__} of shape "
                f"{list(tensor.shape)}; its batch of step {number} has {samples} samples"
            )
        return tensor
