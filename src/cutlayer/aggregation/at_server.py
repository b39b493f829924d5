"""Aggregation by the split server itself, or by whoever holds the transport to all clients.

Clients' vectors are decoded, weighted and added one at a time, in client order. Whoever makes the mean of the
same shares gets the same bits: the server, an aggregator that runs alone, or each client for itself.
"""

from collections.abc import Mapping, Sequence

from torch import Tensor

from cutlayer.aggregation.base import HandsOver, Round, Shared
from cutlayer.aggregation.robust import MeanRule
from cutlayer.errors import MessageError
from cutlayer.protocol.plan import Place
from cutlayer.protocol.run_codecs import ErrorFeedback, RunCodecs
from cutlayer.split.weights import Weighting, add_weighted, mean_weights
from cutlayer.wire.messages.types import GRADIENTS, Share, SyncDown, SyncUp
from cutlayer.wire.transport import Transport

#: The name of the error-feedback memory in a checkpoint.
MEMORY = "aggregator.memory"

#: The client number that the aggregator's own random draws go by.
_NOBODY = (1 << 32) - 1


class RunningMean:
    """The weighted sum of what clients shared so far; `weights` come in the order in which they are added."""

    def __init__(
        self,
        codecs: RunCodecs,
        weights: Sequence[float],
        rule: MeanRule | None = None,
        *,
        keep: bool = False,
    ) -> None:
        """`keep` all vectors, and leave the sum to whoever knows the weights."""
        self.added = 0
        """How many clients are in it."""
        self._codecs = codecs
        self._keep = keep
        self._weights = iter(weights)
        self._rule = rule or MeanRule()
        self._sums: list[Tensor | None] = [None, None]
        self._vectors: tuple[list[Tensor], list[Tensor]] = ([], [])
        """All of them, where the rule needs all at once."""
        self._share = Share.NOTHING

    def add(self, client: int, message: SyncUp) -> None:
        """Add what the next client shared."""
        if self._share not in (Share.NOTHING, message.share):
            raise MessageError(
                f"client {client} shared {message.share.name}, those before it {self._share.name}"
            )
        self._share = message.share
        weight = next(self._weights)
        for i, vector in enumerate(self._codecs.decode_shared(message, client)):
            if vector is None:
                continue
            if self._rule.clip_norm and i == 0 and message.share in GRADIENTS:
                vector = self._rule.clipped(vector)
            if self._rule.needs_all or self._keep:
                self._vectors[i].append(vector)
            else:
                self._sums[i] = add_weighted(self._sums[i], vector, weight)
        self.added += 1

    @property
    def elements(self) -> int:
        """How long the vector of gradients or weights is."""
        first = self.result()[0]
        return 0 if first is None else first.numel()

    def message(self, place: Place, feedback: ErrorFeedback | None = None) -> SyncDown:
        """The mean for all clients: gradients or weights under the sync codec, buffers as they are."""
        first, second = self.result()
        frame = b""
        if first is not None:
            where = (_NOBODY, place.epoch, place.step)
            frame = self._codecs.encode_shared(feedback, first, "sync-down", *where)
        rest = self._codecs.plain(second) if second is not None else b""
        return SyncDown(place.number, frame + rest, self._share, len(frame), place.lr, False)

    def exact(self, number: int) -> SyncDown:
        """The mean as it is, for an evaluation."""
        first, second = (b"" if v is None else self._codecs.plain(v) for v in self.result())
        return SyncDown(number, first + second, self._share, len(first), 0.0, True)

    def result(self) -> list[Tensor | None]:
        """The mean of gradients or weights, and that of buffers; None for what nobody shared."""
        if self._rule.needs_all and self._sums == [None, None]:
            self._sums = [self._rule.combine(found) if found else None for found in self._vectors]
        return self._sums


class ServerAggregation(HandsOver):
    """Turns the clients' SyncUp messages, in client order, into one SyncDown."""

    def __init__(
        self,
        codecs: RunCodecs,
        weighting: Weighting,
        transport: Transport,
        rule: MeanRule | None = None,
    ) -> None:
        self.codecs = codecs
        self._rule = rule or MeanRule()
        self.transport = transport
        self._weighting = weighting
        self._feedback: ErrorFeedback | None = None

    def round(self, samples: Sequence[int]) -> "ServerRound":
        """See `Aggregation.round`."""
        return self.weighted(mean_weights(samples, self._weighting))

    def weighted(self, weights: Sequence[float]) -> "ServerRound":
        """Begin a mean with these weights."""
        return ServerRound(self, RunningMean(self.codecs, weights, self._rule))

    def raw_bytes(self, share: Share) -> int:
        """See `Aggregation.raw_bytes`."""
        return 4 * sum(self.codecs.elements(share))

    def hand_over(self, client: int, shared: Shared, place: Place, heir: int) -> int:
        """See `HandsOver.hand_over`. The very bytes that came go on."""
        shared = _itself(shared)
        message = SyncDown(place.number, shared.body, Share.WEIGHTS, shared.first, place.lr, False)
        self.transport.send(heir, message)
        return message.size

    def feedback(self, elements: int) -> ErrorFeedback | None:
        """What compression has dropped of means so far; begins with the first one."""
        if self._feedback is None and self.codecs.feeds_back and elements:
            self._feedback = ErrorFeedback(elements)
        return self._feedback

    def state(self) -> dict[str, Tensor]:
        """See `Aggregation.state`."""
        return {} if self._feedback is None else {MEMORY: self._feedback.residual}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """See `Aggregation.restore`."""
        self._feedback = None
        if MEMORY in tensors:
            self._feedback = ErrorFeedback(tensors[MEMORY].numel())
            self._feedback.restore(tensors[MEMORY])


class ServerRound(Round):
    """A mean that is made here."""

    def __init__(self, aggregation: ServerAggregation, mean: RunningMean) -> None:
        self._aggregation = aggregation
        self._mean = mean

    def add(self, client: int, shared: Shared) -> None:
        """See `Round.add`."""
        self._mean.add(client, _itself(shared))

    def deliver(self, place: Place, recipients: Sequence[int]) -> int:
        """See `Round.deliver`."""
        message = self._mean.message(place, self._aggregation.feedback(self._mean.elements))
        self._aggregation.transport.tell(recipients, message)
        return message.size

    def deliver_exact(self, number: int, evaluator: int) -> None:
        """See `Round.deliver_exact`."""
        self._aggregation.transport.send(evaluator, self._mean.exact(number))

    def exact(self, number: int) -> SyncDown:
        """The mean as it is."""
        return self._mean.exact(number)

    def result(self) -> list[Tensor | None]:
        """See `RunningMean.result`."""
        return self._mean.result()


def _itself(shared: Shared) -> SyncUp:
    if not isinstance(shared, SyncUp):
        raise MessageError(f"a {type(shared).__name__} holds nothing to average")
    return shared
