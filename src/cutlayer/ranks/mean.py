"""The mean of what clients share, where they are those of several ranks: partial sums, then an all-reduce.

No share leaves its rank. With `exact` the sum goes from rank to rank, and each adds its clients in client
order, so that the mean has the bits of a single process. A rule that needs all shares at once gathers them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cutlayer.aggregation.at_server import RunningMean, ServerAggregation, ServerRound
from cutlayer.aggregation.robust import MeanRule
from cutlayer.errors import MessageError
from cutlayer.protocol.plan import Place
from cutlayer.protocol.run_codecs import RunCodecs
from cutlayer.protocol.state_bytes import from_bytes, to_bytes
from cutlayer.ranks.group import RankGroup
from cutlayer.split.weights import Weighting, add_weighted, mean_weights
from cutlayer.wire.messages.types import Share
from cutlayer.wire.transport import Transport

#: The recipient of a mean for an evaluation, at a rank that does not evaluate.
NOBODY = -1


class RankMean(RunningMean):
    """One rank's part of a mean, until `finish` makes it the whole mean at every rank."""

    def __init__(
        self,
        codecs: RunCodecs,
        samples: Sequence[int],
        weighting: Weighting,
        rule: MeanRule,
        group: RankGroup,
        *,
        exact: bool,
    ) -> None:
        # How large the whole is shows only in the end: the sum is divided then.
        parts = [float(n) if weighting == "samples" else 1.0 for n in samples]
        super().__init__(codecs, parts, rule, keep=exact)
        self._samples = list(samples)
        self._weighting = weighting
        self._group = group

    def finish(self) -> None:
        """Make it the mean over all ranks. All of them call this."""
        said = self._group.talk("mean", share=int(self._share), samples=self._samples[: self.added])
        shares = {Share(one["share"]) for one in said} - {Share.NOTHING}
        if len(shares) > 1:
            raise MessageError(f"clients share {' and '.join(sorted(s.name for s in shares))}")
        self._share = shares.pop() if shares else Share.NOTHING
        sizes = self._codecs.elements(self._share)
        samples = [n for one in said for n in one["samples"]]
        if self._rule.needs_all:
            self._gather(sizes)
        elif self._keep:
            before = sum(len(one["samples"]) for one in said[: self._group.place])
            self._in_order(mean_weights(samples, self._weighting)[before:], sizes)
        else:
            total = float(sum(samples) if self._weighting == "samples" else len(samples))
            self._all_reduce(total, sizes)

    def _all_reduce(self, total: float, sizes: Sequence[int]) -> None:
        own = [
            torch.zeros(n, device=self._codecs.device) if s is None else s
            for s, n in zip(self._sums, sizes, strict=True)
        ]
        summed = self._group.sum(torch.cat([vector.float() for vector in own])).div_(total)
        self._take(torch.split(summed, list(sizes)))

    def _in_order(self, weights: Sequence[float], sizes: Sequence[int]) -> None:
        sums: list[Tensor | None] = [None, None]
        for place in range(self._group.world):
            if place == self._group.place:
                for i, vectors in enumerate(self._vectors):
                    for vector, weight in zip(vectors, weights, strict=False):
                        sums[i] = add_weighted(sums[i], vector, weight)
            begun = self._group.broadcast(torch.tensor([float(s is not None) for s in sums]), place)
            for i, size in enumerate(sizes):
                if begun[i]:
                    found, empty = sums[i], torch.empty(size, device=self._codecs.device)
                    sums[i] = self._group.broadcast(empty if found is None else found, place)
        self._sums = sums

    def _gather(self, sizes: Sequence[int]) -> None:
        named = {f"{i}.{j}": v for i, vectors in enumerate(self._vectors) for j, v in enumerate(vectors)}
        found: tuple[list[Tensor], list[Tensor]] = ([], [])
        for data in self._group.exchange(to_bytes(named) if named else b""):
            # Names in order of clients: tens come behind ones.
            parts = from_bytes(data) if data else {}
            for name in sorted(parts, key=lambda name: int(name.partition(".")[2])):
                found[int(name[0])].append(parts[name])
        self._vectors = found

    def _take(self, vectors: Sequence[Tensor]) -> None:
        self._sums = [vector if vector.numel() else None for vector in vectors]


class RankAggregation(ServerAggregation):
    """Aggregation by the ranks of a server, each for its own clients."""

    def __init__(
        self,
        codecs: RunCodecs,
        weighting: Weighting,
        transport: Transport,
        rule: MeanRule,
        group: RankGroup,
        *,
        exact: bool,
    ) -> None:
        super().__init__(codecs, weighting, transport, rule)
        self._whole_rule = rule
        self._weights_by: Weighting = weighting
        self._group = group
        self._exact = exact

    def round(self, samples: Sequence[int]) -> RankRound:
        """See `Aggregation.round`."""
        mean = RankMean(
            self.codecs, samples, self._weights_by, self._whole_rule, self._group, exact=self._exact
        )
        return RankRound(self, mean)


class RankRound(ServerRound):
    """A mean that all ranks make together."""

    def __init__(self, aggregation: ServerAggregation, mean: RankMean) -> None:
        super().__init__(aggregation, mean)
        self._part = mean

    def deliver(self, place: Place, recipients: Sequence[int]) -> int:
        """See `Round.deliver`. Each rank sends it to its own clients."""
        self._part.finish()
        return super().deliver(place, recipients)

    def deliver_exact(self, number: int, evaluator: int) -> None:
        """See `Round.deliver_exact`."""
        self._part.finish()
        if evaluator != NOBODY:
            super().deliver_exact(number, evaluator)
