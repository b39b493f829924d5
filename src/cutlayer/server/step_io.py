"""What server and clients say to each other in a step, as the training loop sees it.

Every message is checked against what the step expects, decoded or encoded, counted and put on the timeline.
A client that says something else is blamed for it: what becomes of it is the transport's business.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import torch
from torch import Tensor

from cutlayer.errors import AbsentError, FrameError, MessageError
from cutlayer.protocol.plan import Step
from cutlayer.protocol.run_codecs import Crossings
from cutlayer.server.timeline import Timeline
from cutlayer.wire.messages import labels as packing
from cutlayer.wire.messages.types import Gradient, Labels, Message, Smashed
from cutlayer.wire.meter import Direction, Kind
from cutlayer.wire.transport import Transport

M = TypeVar("M", bound=Message)


class NobodyError(Exception):
    """Everybody who could take part in a step is gone. The run goes on with the next one."""


class Dialogue:
    """Takes and sends the messages of a step, client by client."""

    def __init__(
        self, transport: Transport, crossings: Crossings, timeline: Timeline, classes: int, rates: bool
    ) -> None:
        self.transport = transport
        self.crossings = crossings
        self.timeline = timeline
        self.classes = classes
        self.rates = rates
        """Whether clients choose how many bits an element takes, so that it is worth a note."""
        self.planned: dict[int, int] = {}
        """How large the batch of each client is."""
        self.raw: dict[str, int] = {}
        """What the step's tensors would take as plain float32, by direction and kind."""
        self.chosen: dict[str, float] = {}
        """Bits an element of each client's smashed data, where they choose."""
        # What was taken ahead of its turn.
        self._early: dict[int, Any] = {}

    def begin(self, step: Step) -> None:
        """A new step."""
        self.planned = dict(zip(step.clients, step.samples, strict=True))
        self.raw, self.chosen, self._early = {}, {}, {}

    def gather_batches(self, step: Step) -> Step:
        """The step with those clients whose smashed data and labels are there and in order."""
        return self._gather(step, 2, self._take_batch)

    def gather_tensors(self, step: Step, kind: type[Smashed | Gradient]) -> Step:
        """The step with those clients whose smashed data, or gradients, are there and in order."""
        return self._gather(step, 1, lambda step, client: self._take_tensor(step, client, kind))

    def receive_batch(self, step: Step, client: int) -> tuple[Tensor, Tensor]:
        """A client's smashed data and labels."""
        if client in self._early:
            early: tuple[Tensor, Tensor] = self._early.pop(client)
            return early
        return self._take_batch(step, client)

    def receive_tensor(self, step: Step, client: int, kind: type[Smashed | Gradient]) -> Tensor:
        """A client's smashed data, or the gradient from its tail."""
        if client in self._early:
            early: Tensor = self._early.pop(client)
            return early
        return self._take_tensor(step, client, kind)

    def send_down(self, step: Step, client: int, kind: type[Smashed | Gradient], tensor: Tensor) -> None:
        """Send a client its gradient, or the activations for its tail."""
        what = "down" if kind is Gradient else "down-features"
        with self.timeline.server("server_encode"):
            frame = self.crossings.encode(self.crossings.down, tensor, what, client, step.epoch, step.step)
        self.timeline.down(client, len(frame))
        message = kind(step.number, frame)
        self.count_raw(Direction.DOWN, message.kind, 4 * tensor.numel())
        self.transport.send(client, message)

    def expect(self, step: Step, client: int, kind: type[M]) -> M:
        """A client's next message, which has to be of that kind and of this step."""
        with self.blaming(client):
            message = self.transport.receive(client)
            if type(message) is not kind or message.number != step.number:
                raise MessageError(
                    f"client {client} sent a {type(message).__name__} of step {message.number}; expected a "
                    f"{kind.__name__} of step {step.number}"
                )
        return message

    @contextmanager
    def blaming(self, client: int) -> Iterator[None]:
        """What goes wrong inside is the client's fault."""
        try:
            yield
        except AbsentError:
            raise
        except (MessageError, FrameError) as error:
            self.transport.fault(client, error)
            raise

    def count_raw(self, direction: Direction, kind: Kind, nbytes: int) -> None:
        """Count what would have crossed as plain float32."""
        if nbytes:
            key = f"{direction}/{kind}"
            self.raw[key] = self.raw.get(key, 0) + nbytes

    def _gather(self, step: Step, messages: int, take: Callable[[Step, int], Any]) -> Step:
        """The step with those clients who have sent so many messages.

        A patient transport needs no such look: everybody will answer, and each is taken in turn. Otherwise
        the messages are taken and decoded here, because the weights of a mean depend on who takes part in
        it.
        """
        if self.transport.patient:
            return step
        for client in self.transport.present(step.clients, messages):
            with suppress(MessageError, FrameError):
                self._early[client] = take(step, client)
        step = step.only(self._early)
        if not step.clients:
            raise NobodyError
        return step

    def _take_batch(self, step: Step, client: int) -> tuple[Tensor, Tensor]:
        message = self.expect(step, client, Smashed)
        labels = self.expect(step, client, Labels)
        self.timeline.up(client, message.size + labels.size)
        with self.blaming(client), self.timeline.server("server_decode"):
            smashed = self.crossings.decode(message.body)
            unpacked = torch.from_numpy(packing.unpack(labels.body, labels.count, self.classes))
            self._accept(step, client, message, smashed)
            if len(unpacked) != len(smashed):
                raise MessageError(f"client {client}: {len(unpacked)} labels for {len(smashed)} samples")
        return smashed, unpacked

    def _take_tensor(self, step: Step, client: int, kind: type[Smashed | Gradient]) -> Tensor:
        message = self.expect(step, client, kind)
        self.timeline.up(client, message.size)
        with self.blaming(client), self.timeline.server("server_decode"):
            tensor = self.crossings.decode(message.body)
            self._accept(step, client, message, tensor)
        return tensor

    def _accept(self, step: Step, client: int, message: Message, tensor: Tensor) -> None:
        planned = self.planned[client]
        if not tensor.dim() or len(tensor) != planned:
            raise MessageError(
                f"client {client} sent {type(message).__name__} of shape {list(tensor.shape)}; its batch of "
                f"step {step.number} has {planned} samples"
            )
        self.count_raw(Direction.UP, message.kind, 4 * tensor.numel())
        if self.rates and isinstance(message, Smashed):
            self.chosen[str(client)] = 8 * message.size / tensor.numel()
