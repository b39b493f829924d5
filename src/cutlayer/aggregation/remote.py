"""Aggregation in a process of its own, as the split server sees it: orders go out, no weights come in."""

from collections.abc import Sequence

from cutlayer.aggregation.base import HandsOver, Round, Shared
from cutlayer.aggregation.orders import Orders
from cutlayer.protocol.plan import Place
from cutlayer.split.weights import Weighting, mean_weights
from cutlayer.wire.messages.types import Placeholder, Share
from cutlayer.wire.transport import Transport


class RemoteAggregation(HandsOver):
    """Gives orders to an aggregator, which has what clients share, and tells clients when to look there."""

    shares = Placeholder

    def __init__(self, weighting: Weighting, transport: Transport, orders: Orders) -> None:
        self._weighting = weighting
        self._transport = transport
        self._orders = orders

    def round(self, samples: Sequence[int]) -> "RemoteRound":
        """See `Aggregation.round`."""
        return RemoteRound(self._transport, self._orders, mean_weights(samples, self._weighting))

    def raw_bytes(self, share: Share) -> int:
        """See `Aggregation.raw_bytes`. Shares do not pass the server."""
        return 0

    def hand_over(self, client: int, shared: Shared, place: Place, heir: int) -> int:
        """See `HandsOver.hand_over`."""
        round_ = RemoteRound(self._transport, self._orders, [1.0], handover=True)
        round_.add(client, shared)
        return round_.deliver(place, [heir])


class RemoteRound(Round):
    """Who is in a mean, and with which weight. What they shared is at the aggregator."""

    def __init__(
        self, transport: Transport, orders: Orders, weights: Sequence[float], *, handover: bool = False
    ) -> None:
        self._transport = transport
        self._orders = orders
        self._weights = list(weights)
        self._handover = handover
        self._clients: list[int] = []

    def add(self, client: int, shared: Shared) -> None:
        """See `Round.add`."""
        self._clients.append(client)

    def deliver(self, place: Place, recipients: Sequence[int]) -> int:
        """See `Round.deliver`."""
        self._orders.give(
            "Combine",
            number=place.number,
            epoch=place.epoch,
            step=place.step,
            clients=self._clients,
            weights=self._weights,
            recipients=recipients,
            lr=place.lr,
            handover=self._handover,
        )
        word = Placeholder(place.number)
        for client in recipients:
            self._transport.send(client, word)
        return word.size

    def deliver_exact(self, number: int, evaluator: int) -> None:
        """See `Round.deliver_exact`."""
        self._orders.give(
            "Combine",
            number=number,
            clients=self._clients,
            weights=self._weights,
            recipients=[evaluator],
            evaluation=True,
        )
        self._transport.send(evaluator, Placeholder(number))
