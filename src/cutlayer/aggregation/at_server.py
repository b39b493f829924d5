"""The aggregator: averages what clients share, and knows nothing else. It can live in its own process."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from cutlayer.errors import MessageError
from cutlayer.protocol.error_feedback import Memory
from cutlayer.protocol.plan import Step
from cutlayer.protocol.run_codecs import Crossings
from cutlayer.split.aggregate import Weighting, add_weighted, shares
from cutlayer.wire.messages.types import Message, Share, SyncDown, SyncUp
from cutlayer.wire.transport import Transport

#: The client number that the aggregator's own random draws go by.
_NOBODY = (1 << 32) - 1

#: The name of the aggregator's memory in a checkpoint.
MEMORY = "aggregator.memory"


class Aggregator:
    """Turns the clients' SyncUp messages, in client order, into one SyncDown."""

    #: What a client's share looks like to the training loop.
    shared: type[Message] = SyncUp

    def __init__(self, crossings: Crossings, weighting: Weighting) -> None:
        self.crossings = crossings
        self.weighting = weighting
        self.memory: Memory | None = None
        """What compression has dropped of means; begins with the first one."""

    def raw_bytes(self, share: Share) -> int:
        """What one client's share would cost as plain float32, if it comes here."""
        return 4 * sum(self.crossings.elements(share)) if self.shared is SyncUp else 0

    def running(self, samples: Sequence[int]) -> "RunningMean":
        """A mean over clients with so many samples, to which they are added in this order."""
        return RunningMean(self.crossings, shares(samples, self.weighting))

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint needs of the aggregator."""
        return {} if self.memory is None else {MEMORY: self.memory.rest}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from what `state` gave."""
        self.memory = None
        if MEMORY in tensors:
            self.memory = Memory(tensors[MEMORY].numel())
            self.memory.restore(tensors[MEMORY])

    def check(self, shared: Message, client: int) -> None:
        """Raise if what a client shared cannot be decoded, before it can spoil a mean."""
        if isinstance(shared, SyncUp):
            self.crossings.decode_shared(shared, client)

    def hand_over(self, shared: Message, client: int, step: Step, heir: int, transport: Transport) -> int:
        """Relay: send one client's weights to the next, the very bytes that came. Their size."""
        if not isinstance(shared, SyncUp):
            raise TypeError(f"{type(shared).__name__} cannot be handed over")
        message = SyncDown(step.number, shared.body, Share.WEIGHTS, shared.first, step.lr, False)
        transport.send(heir, message)
        return message.size

    def deliver(self, mean: "RunningMean", step: Step, clients: Sequence[int], transport: Transport) -> int:
        """Send the mean to clients. Its size."""
        if self.memory is None and self.crossings.feedback and mean.elements:
            self.memory = Memory(mean.elements)
        message = mean.message(step, self.memory)
        for client in clients:
            transport.send(client, message)
        return message.size

    def deliver_for_evaluation(
        self, mean: "RunningMean", number: int, client: int, transport: Transport
    ) -> None:
        """Send the exact mean to the evaluator."""
        transport.send(client, mean.for_evaluation(number))


class RunningMean:
    """A mean in the making: clients' vectors are decoded, weighted and added one at a time."""

    def __init__(self, crossings: Crossings, weights: Sequence[float]) -> None:
        self.crossings = crossings
        self._weights = iter(weights)
        self._sums: list[Tensor | None] = [None, None]
        self._share = Share.NOTHING

    def add(self, message: Message, client: int) -> None:
        """Add what the next client shared."""
        if not isinstance(message, SyncUp):
            raise TypeError(f"{type(message).__name__} cannot be averaged")
        if self._share not in (Share.NOTHING, message.share):
            raise MessageError(
                f"client {client} shared {message.share.name}, those before it {self._share.name}"
            )
        self._share = message.share
        weight = next(self._weights)
        for i, vector in enumerate(self.crossings.decode_shared(message, client)):
            if vector is not None:
                self._sums[i] = add_weighted(self._sums[i], vector, weight)

    @property
    def elements(self) -> int:
        """How long the vector of gradients or weights is."""
        return 0 if self._sums[0] is None else self._sums[0].numel()

    def message(self, step: Step, memory: Memory | None = None) -> SyncDown:
        """The mean for all clients: gradients or weights under the sync codec, buffers as they are."""
        first, second = self._sums
        frame = b""
        if first is not None:
            place = (_NOBODY, step.epoch, step.step)
            frame = self.crossings.encode_shared(memory, first, "sync-down", *place)
        rest = self.crossings.plain(second) if second is not None else b""
        return SyncDown(step.number, frame + rest, self._share, len(frame), step.lr, False)

    def for_evaluation(self, number: int) -> SyncDown:
        """The mean as it is, for the evaluator alone."""
        first, second = (b"" if v is None else self.crossings.plain(v) for v in self._sums)
        return SyncDown(number, first + second, self._share, len(first), 0.0, True)
