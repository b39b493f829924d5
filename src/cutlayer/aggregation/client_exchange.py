"""A client's part where clients average among themselves (`train.aggregation = allreduce | allgather`).

`allreduce` sends each client's vector once around (O(n) bytes for each client, whatever their number), and
the order of the sum is gloo's: results agree with the server's mean to rounding. `allgather` gathers the
encoded shares of all (O(n²) bytes in all), and every client makes the mean as the server would: in client
order, under the sync codec, with the seed of that place. All get the same bits, and the same as with
`aggregation = server`.
"""

from abc import ABC, abstractmethod
from typing import Literal

import torch

from cutlayer.aggregation.at_server import RunningMean
from cutlayer.aggregation.gloo import Gloo
from cutlayer.aggregation.robust import MeanRule
from cutlayer.errors import MessageError, RollbackError, UnreachableError
from cutlayer.protocol.plan import Place
from cutlayer.protocol.run_codecs import RunCodecs
from cutlayer.wire.messages.base import pack
from cutlayer.wire.messages.types import Combine, Share, SyncDown, SyncUp, unpack

# After so many exchanges in a row that failed, it is not a client that died.
_ATTEMPTS = 3


class ClientExchange(ABC):
    """Keeps what this client shares until the server says whose shares make a mean."""

    def __init__(self, gloo: Gloo, client: int, clients: int, rule: MeanRule | None = None) -> None:
        self._gloo = gloo
        self._rule = rule or MeanRule()
        self._client = client
        self._clients = clients
        self._share: SyncUp | None = None
        self._failures = 0

    def rendezvous(self) -> str:
        """Where clients meet, if this is the one who opens the place; nothing otherwise."""
        return self._gloo.open() if self._client == 0 else ""

    def begin(self, codecs: RunCodecs, rendezvous: str, era: str) -> None:
        """An era begins: nothing of an earlier one counts."""
        self._share = None
        self._codecs = codecs
        self._gloo.begin(self._client, self._clients, rendezvous, era)

    def keep(self, share: SyncUp) -> None:
        """What this client shares in the next exchange."""
        self._share = share

    def combine(self, order: Combine) -> SyncDown | None:
        """The mean that the order asks for; None where it is not for this client.

        Raises `RollbackError` if the exchange broke: then this client's state is not that of the others.
        """
        own, self._share = self._share, None
        try:
            mean = self._mean(own, order)
        except RollbackError as error:
            self._failures += 1
            if self._failures < _ATTEMPTS:
                raise
            raise UnreachableError(
                f"{error}. This was the {self._failures}th time in a row: can the clients reach each other? "
                "Each gives an address that the others can reach with --allreduce-listen"
            ) from None
        self._failures = 0
        return None if order.evaluation and order.evaluator != self._client else mean

    def close(self) -> None:
        """Leave."""
        self._gloo.close()

    @abstractmethod
    def _mean(self, own: SyncUp | None, order: Combine) -> SyncDown | None:
        """Take part in the exchange, with or without a share of one's own."""


class AllGather(ClientExchange):
    """Everybody gets all shares as they were sent, and makes the mean of them. Exact to the bit."""

    def _mean(self, own: SyncUp | None, order: Combine) -> SyncDown | None:
        gathered = self._gloo.all_gather(b"" if own is None else b"".join(pack(own)))
        if order.evaluation and order.evaluator != self._client:
            return None
        weights = order.weights
        mean = RunningMean(self._codecs, list(weights.values()), self._rule)
        for client in weights:
            mean.add(client, self._share_of(client, gathered, order.number))
        if order.evaluation:
            return mean.exact(order.number)
        return mean.message(Place(order.number, order.epoch, order.step, order.lr))

    def _share_of(self, client: int, gathered: list[bytes], number: int) -> SyncUp:
        if client >= len(gathered):
            raise MessageError(f"the server names client {client} of {len(gathered)}")
        if not gathered[client]:
            raise MessageError(f"client {client} shared nothing, though the server has it in the mean")
        share = unpack(gathered[client])
        if not isinstance(share, SyncUp) or share.number != number:
            raise MessageError(f"client {client} shared a {type(share).__name__} of step {share.number}")
        return share


class AllReduce(ClientExchange):
    """Weighted vectors are summed by gloo's all-reduce, uncompressed. Agrees to rounding."""

    def _mean(self, own: SyncUp | None, order: Combine) -> SyncDown | None:
        weights = order.weights
        if self._client in weights and own is None:
            raise MessageError("the server has this client in a mean to which it shares nothing")
        share = self._agree(Share.NOTHING if own is None else own.share)
        sizes = self._codecs.elements(share)
        vectors = [torch.zeros(size) for size in sizes]
        if own is not None and self._client in weights:
            for vector, decoded in zip(vectors, self._codecs.decode_shared(own, self._client), strict=True):
                if decoded is not None:
                    vector.add_(decoded, alpha=weights[self._client])
        first, second = torch.split(self._gloo.all_reduce(torch.cat(vectors)), list(sizes))
        frames = self._codecs.plain(first), self._codecs.plain(second)
        return SyncDown(order.number, b"".join(frames), share, len(frames[0]), order.lr, order.evaluation)

    def _agree(self, share: Share) -> Share:
        """What is shared this time: a client that sits the step out does not know."""
        wish = torch.tensor([share, -share if share else -len(Share)])
        largest, smallest = self._gloo.all_reduce(wish, largest=True).tolist()
        if largest != -smallest:
            raise MessageError(f"some clients share {Share(largest).name}, others {Share(-smallest).name}")
        return Share(largest)


#: How clients average among themselves, by the name of the setting.
EXCHANGES: dict[Literal["allreduce", "allgather"], type[ClientExchange]] = {
    "allreduce": AllReduce,
    "allgather": AllGather,
}
