"""Aggregation among the clients, as the split server sees it: no shares come in, and no mean goes out.

The server gets word that a client has something to share (`Placeholder`), and says whose shares make a mean,
and with which weights (`Combine`). `client_exchange.py` is the clients' part.
"""

from collections.abc import Sequence

from cutlayer.aggregation.base import Aggregation, Round, Shared
from cutlayer.protocol.plan import Place
from cutlayer.split.weights import Weighting, mean_weights
from cutlayer.wire.messages.types import Combine, Placeholder, Share
from cutlayer.wire.transport import Transport


class ClientAggregation(Aggregation):
    """Has clients average among themselves, by all-reduce or by an all-gather that is exact to the bit."""

    shares = Placeholder

    def __init__(self, weighting: Weighting, transport: Transport) -> None:
        self._weighting = weighting
        self._transport = transport

    def round(self, samples: Sequence[int]) -> "ClientRound":
        """See `Aggregation.round`."""
        return ClientRound(self._transport, mean_weights(samples, self._weighting))

    def raw_bytes(self, share: Share) -> int:
        """See `Aggregation.raw_bytes`. Shares do not pass the server."""
        return 0


class ClientRound(Round):
    """Who is in a mean, and with which weight. Everybody takes part in the exchange."""

    def __init__(self, transport: Transport, weights: Sequence[float]) -> None:
        self._transport = transport
        self._weights = list(weights)
        self._clients: list[int] = []

    def add(self, client: int, shared: Shared) -> None:
        """See `Round.add`."""
        self._clients.append(client)

    def deliver(self, place: Place, recipients: Sequence[int]) -> int:
        """See `Round.deliver`."""
        order = Combine(place.number, self._packed(), place.epoch, place.step, place.lr, False, 0)
        self._transport.announce(recipients, order)
        return order.size

    def deliver_exact(self, number: int, evaluator: int) -> None:
        """See `Round.deliver_exact`. All take part in the exchange; one uses the mean."""
        order = Combine(number, self._packed(), 0, 0, 0.0, True, evaluator)
        self._transport.announce(self._transport.members(), order)

    def _packed(self) -> bytes:
        return Combine.pack_weights(dict(zip(self._clients, self._weights, strict=True)))
