"""The aggregator: averages what clients share, and knows nothing else. It can live in its own process."""

from collections.abc import Sequence

from torch import Tensor

from cutlayer.run.crossing import Crossings
from cutlayer.run.plan import Step
from cutlayer.split.aggregate import Weighting, add_weighted, shares
from cutlayer.wire.messages import Share, SyncDown, SyncUp

#: The client number that the aggregator's own random draws go by.
_NOBODY = (1 << 32) - 1


class Aggregator:
    """Turns the clients' SyncUp messages, in client order, into one SyncDown."""

    def __init__(self, crossings: Crossings, weighting: Weighting) -> None:
        self.crossings = crossings
        self.weighting = weighting

    def running(self, samples: Sequence[int]) -> "RunningMean":
        """A mean over clients with so many samples, to which they are added in this order."""
        return RunningMean(self.crossings, shares(samples, self.weighting))

    def check(self, shared: SyncUp) -> None:
        """Raise if what a client shared cannot be decoded, before it can spoil a mean."""
        for frame in shared.frames:
            if frame:
                self.crossings.decode(frame)

    @staticmethod
    def handed_over(shared: SyncUp, step: Step) -> SyncDown:
        """Relay: one client's weights for the next, the very bytes that came."""
        return SyncDown(step.number, shared.body, Share.WEIGHTS, shared.first, step.lr, False)


class RunningMean:
    """A mean in the making: clients' vectors are decoded, weighted and added one at a time."""

    def __init__(self, crossings: Crossings, weights: Sequence[float]) -> None:
        self.crossings = crossings
        self._weights = iter(weights)
        self._sums: list[Tensor | None] = [None, None]
        self._share = Share.NOTHING

    def add(self, message: SyncUp) -> None:
        """Add the next client."""
        weight = next(self._weights)
        self._share = message.share
        for i, frame in enumerate(message.frames):
            if frame:
                self._sums[i] = add_weighted(self._sums[i], self.crossings.decode(frame), weight)

    def message(self, step: Step) -> SyncDown:
        """The mean for all clients: gradients or weights under the sync codec, buffers as they are."""
        first, second = self._sums
        frame = b""
        if first is not None:
            place = (_NOBODY, step.epoch, step.step)
            frame = self.crossings.encode(self.crossings.sync, first, "sync-down", *place)
        rest = self.crossings.plain(second) if second is not None else b""
        return SyncDown(step.number, frame + rest, self._share, len(frame), step.lr, False)

    def for_evaluation(self, number: int) -> SyncDown:
        """The mean as it is, for the evaluator alone."""
        first, second = (b"" if v is None else self.crossings.plain(v) for v in self._sums)
        return SyncDown(number, first + second, self._share, len(first), 0.0, True)
