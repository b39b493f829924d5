"""The aggregator, when it runs alone, as the split server sees it: orders go out, no weights come in."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc

from cutlayer.errors import RollbackError
from cutlayer.run.aggregator import Aggregator, RunningMean
from cutlayer.run.crossing import Crossings
from cutlayer.run.plan import Step
from cutlayer.split.aggregate import Weighting, shares
from cutlayer.wire.background import background
from cutlayer.wire.connection import options
from cutlayer.wire.credentials import ClientSecurity
from cutlayer.wire.messages import Elsewhere, Message
from cutlayer.wire.protocol import PACKAGE, message_class
from cutlayer.wire.transport import Transport

# How long an order may take: the clients may be slow to come.
_PATIENCE = 3600.0


class Orders:
    """The server's connection to an aggregator."""

    def __init__(self, address: str, security: ClientSecurity) -> None:
        self.address = address
        self._security = security
        self._channel: Any = background().run(self._open())

    def give(self, method: str, **order: Any) -> None:
        """Have something done, and wait for it."""
        kinds = {"Begin": "Beginning", "Combine": "Combination", "Keep": "Keeping"}
        background().run(self._give(method, message_class(kinds[method])(**order)))

    def close(self) -> None:
        """Hang up."""
        background().run(self._channel.close())

    async def _open(self) -> Any:
        return self._security.channel(self.address, options())

    async def _give(self, method: str, order: Any) -> None:
        call = self._channel.unary_unary(
            f"/{PACKAGE}.Aggregation/{method}",
            request_serializer=type(order).SerializeToString,
            response_deserializer=message_class("Done").FromString,
        )
        try:
            await call(
                order, metadata=self._security.metadata, timeout=_PATIENCE, wait_for_ready=method == "Begin"
            )
        except grpc.aio.AioRpcError as error:
            await asyncio.sleep(0.5)
            raise RollbackError(f"the aggregator at {self.address}: {error.details()}") from None


class RemoteMean(RunningMean):
    """Who takes part in a mean, and with which weight. What they shared is at the aggregator."""

    def __init__(self, crossings: Crossings, weights: Sequence[float]) -> None:
        super().__init__(crossings, weights)
        self.weights = list(weights)
        self.clients: list[int] = []

    def add(self, message: Message, client: int) -> None:
        """Add the next client."""
        self.clients.append(client)


class RemoteAggregator(Aggregator):
    """Gives orders to an aggregator that runs alone."""

    shared = Elsewhere

    def __init__(self, crossings: Crossings, weighting: Weighting, orders: Orders) -> None:
        super().__init__(crossings, weighting)
        self.orders = orders

    def running(self, samples: Sequence[int]) -> RemoteMean:
        """See `Aggregator.running`."""
        return RemoteMean(self.crossings, shares(samples, self.weighting))

    def hand_over(self, shared: Message, client: int, step: Step, heir: int, transport: Transport) -> int:
        """See `Aggregator.hand_over`."""
        return self._combine([client], [1.0], step, [heir], transport, handover=True)

    def deliver(self, mean: RunningMean, step: Step, clients: Sequence[int], transport: Transport) -> int:
        """See `Aggregator.deliver`."""
        if not isinstance(mean, RemoteMean):
            raise TypeError("this mean is not the aggregator's")
        return self._combine(mean.clients, mean.weights, step, clients, transport)

    def deliver_for_evaluation(
        self, mean: RunningMean, number: int, client: int, transport: Transport
    ) -> None:
        """See `Aggregator.deliver_for_evaluation`."""
        if not isinstance(mean, RemoteMean):
            raise TypeError("this mean is not the aggregator's")
        self.orders.give(
            "Combine",
            number=number,
            clients=mean.clients,
            weights=mean.weights,
            recipients=[client],
            evaluation=True,
        )
        transport.send(client, Elsewhere(number))

    def _combine(
        self,
        clients: Sequence[int],
        weights: Sequence[float],
        step: Step,
        recipients: Sequence[int],
        transport: Transport,
        handover: bool = False,
    ) -> int:
        self.orders.give(
            "Combine",
            number=step.number,
            epoch=step.epoch,
            step=step.step,
            clients=clients,
            weights=weights,
            recipients=recipients,
            lr=step.lr,
            handover=handover,
        )
        word = Elsewhere(step.number)
        for client in recipients:
            transport.send(client, word)
        return word.size
