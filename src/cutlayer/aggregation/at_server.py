"""Aggregation by the split server itself, or by whoever holds the transport to all clients."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from cutlayer.aggregation.base import HandsOver, Round, Shared
from cutlayer.aggregation.mean import RunningMean
from cutlayer.errors import MessageError
from cutlayer.protocol.error_feedback import ErrorFeedback
from cutlayer.protocol.plan import Place
from cutlayer.protocol.run_codecs import RunCodecs
from cutlayer.split.aggregate import Weighting, shares
from cutlayer.wire.messages.types import Share, SyncDown, SyncUp
from cutlayer.wire.transport import Transport

#: The name of the error-feedback memory in a checkpoint.
MEMORY = "aggregator.memory"


class ServerAggregation(HandsOver):
    """Turns the clients' SyncUp messages, in client order, into one SyncDown."""

    def __init__(self, codecs: RunCodecs, weighting: Weighting, transport: Transport) -> None:
        self.codecs = codecs
        self.transport = transport
        self._weighting = weighting
        self._feedback: ErrorFeedback | None = None

    def round(self, samples: Sequence[int]) -> "ServerRound":
        """See `Aggregation.round`."""
        return self.weighted(shares(samples, self._weighting))

    def weighted(self, weights: Sequence[float]) -> "ServerRound":
        """Begin a mean with these weights."""
        return ServerRound(self, RunningMean(self.codecs, weights))

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
        for client in recipients:
            self._aggregation.transport.send(client, message)
        return message.size

    def deliver_exact(self, number: int, evaluator: int) -> None:
        """See `Round.deliver_exact`."""
        self._aggregation.transport.send(evaluator, self._mean.exact(number))

    def exact(self, number: int) -> SyncDown:
        """The mean as it is."""
        return self._mean.exact(number)


def _itself(shared: Shared) -> SyncUp:
    if not isinstance(shared, SyncUp):
        raise MessageError(f"a {type(shared).__name__} holds nothing to average")
    return shared
