"""A mean over clients in the making: their vectors are decoded, weighted and added one at a time.

Sums run in client order. Whoever makes the mean of the same shares gets the same bits: the server, an
aggregator that runs alone, or each client for itself.
"""

from collections.abc import Sequence

from torch import Tensor

from cutlayer.errors import MessageError
from cutlayer.protocol.error_feedback import ErrorFeedback
from cutlayer.protocol.plan import Place
from cutlayer.protocol.run_codecs import RunCodecs
from cutlayer.split.aggregate import add_weighted
from cutlayer.wire.messages.types import Share, SyncDown, SyncUp

#: The client number that the aggregator's own random draws go by.
_NOBODY = (1 << 32) - 1


class RunningMean:
    """The weighted sum of what clients shared so far; `weights` come in the order in which they are added."""

    def __init__(self, codecs: RunCodecs, weights: Sequence[float]) -> None:
        self._codecs = codecs
        self._weights = iter(weights)
        self._sums: list[Tensor | None] = [None, None]
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
            if vector is not None:
                self._sums[i] = add_weighted(self._sums[i], vector, weight)

    @property
    def elements(self) -> int:
        """How long the vector of gradients or weights is."""
        return 0 if self._sums[0] is None else self._sums[0].numel()

    def message(self, place: Place, feedback: ErrorFeedback | None = None) -> SyncDown:
        """The mean for all clients: gradients or weights under the sync codec, buffers as they are."""
        first, second = self._sums
        frame = b""
        if first is not None:
            where = (_NOBODY, place.epoch, place.step)
            frame = self._codecs.encode_shared(feedback, first, "sync-down", *where)
        rest = self._codecs.plain(second) if second is not None else b""
        return SyncDown(place.number, frame + rest, self._share, len(frame), place.lr, False)

    def exact(self, number: int) -> SyncDown:
        """The mean as it is, for an evaluation."""
        first, second = (b"" if v is None else self._codecs.plain(v) for v in self._sums)
        return SyncDown(number, first + second, self._share, len(first), 0.0, True)
