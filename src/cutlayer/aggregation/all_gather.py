"""The aggregator as the split server sees it when clients average among themselves.

What clients share does not come here. The server gets word of it (`Elsewhere`), and says whose shares make
a mean, and with which weights (`Combine`). `among_clients.py` is the clients' part.
"""

from collections.abc import Sequence

from cutlayer.aggregation.at_server import Aggregator, RunningMean
from cutlayer.aggregation.remote import RemoteMean
from cutlayer.errors import MessageError
from cutlayer.protocol.plan import Step
from cutlayer.split.aggregate import shares
from cutlayer.wire.messages.types import Combine, Elsewhere, Message
from cutlayer.wire.transport import Transport


class AllReduce(Aggregator):
    """Has clients average among themselves."""

    shared = Elsewhere

    def running(self, samples: Sequence[int]) -> RemoteMean:
        """See `Aggregator.running`."""
        return RemoteMean(self.crossings, shares(samples, self.weighting))

    def hand_over(self, shared: Message, client: int, step: Step, heir: int, transport: Transport) -> int:
        """Not here: the configuration keeps relay and allreduce apart."""
        raise MessageError("relay hands weights over, and all-reduce has nobody who could; use server")

    def deliver(self, mean: RunningMean, step: Step, clients: Sequence[int], transport: Transport) -> int:
        """See `Aggregator.deliver`."""
        order = Combine(step.number, _weights(mean), step.epoch, step.step, step.lr, False, 0)
        transport.announce(clients, order)
        return order.size

    def deliver_for_evaluation(
        self, mean: RunningMean, number: int, client: int, transport: Transport
    ) -> None:
        """See `Aggregator.deliver_for_evaluation`. All take part in the exchange; one uses the mean."""
        transport.announce(transport.members(), Combine(number, _weights(mean), 0, 0, 0.0, True, client))


def _weights(mean: RunningMean) -> bytes:
    if not isinstance(mean, RemoteMean):
        raise TypeError("this mean is not the clients'")
    return Combine.pack_weights(dict(zip(mean.clients, mean.weights, strict=True)))
