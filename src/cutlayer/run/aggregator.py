"""The aggregator: averages what clients share, and knows nothing else. It can live in its own process."""

from collections.abc import Sequence

from torch import Tensor

from cutlayer.run.crossing import Crossings
from cutlayer.run.plan import Step
from cutlayer.split.aggregate import Weighting, shares, weighted_sum
from cutlayer.wire.messages import Share, SyncDown, SyncUp

#: The client number that the aggregator's own random draws go by.
_NOBODY = (1 << 32) - 1


class Aggregator:
    """Turns the clients' SyncUp messages, in client order, into one SyncDown."""

    def __init__(self, crossings: Crossings, weighting: Weighting) -> None:
        self.crossings = crossings
        self.weighting = weighting

    def mean(self, shared: Sequence[SyncUp], samples: Sequence[int], step: Step) -> SyncDown:
        """The mean of gradients or weights, under the sync codec, and of buffers as they are."""
        weights = shares(samples, self.weighting)
        first, second = self._means(shared, weights)
        frame = b""
        if first is not None:
            place = (_NOBODY, step.epoch, step.step)
            frame = self.crossings.encode(self.crossings.sync, first, "sync-down", *place)
        rest = self.crossings.plain(second) if second is not None else b""
        return SyncDown(step.number, frame + rest, shared[0].share, len(frame), step.lr, False)

    def evaluated(self, shared: Sequence[SyncUp], samples: Sequence[int], number: int) -> SyncDown:
        """The mean of what is to be evaluated, exactly."""
        first, second = self._means(shared, shares(samples, self.weighting))
        frame = self.crossings.plain(first) if first is not None else b""
        rest = self.crossings.plain(second) if second is not None else b""
        return SyncDown(number, frame + rest, shared[0].share, len(frame), 0.0, True)

    @staticmethod
    def handed_over(shared: SyncUp, step: Step) -> SyncDown:
        """Relay: one client's weights for the next, the very bytes that came."""
        return SyncDown(step.number, shared.body, Share.WEIGHTS, shared.first, step.lr, False)

    def _means(self, shared: Sequence[SyncUp], weights: Sequence[float]) -> list[Tensor | None]:
        return [
            # Decoded one at a time: a thousand clients' vectors need not be in memory at once.
            weighted_sum((self.crossings.decode(m.frames[i]) for m in shared), weights)
            if shared[0].frames[i]
            else None
            for i in (0, 1)
        ]
