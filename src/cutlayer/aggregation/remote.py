"""The aggregator, when it runs alone, as the split server sees it: orders go out, no weights come in."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Sequence
from typing import Any

import grpc

from cutlayer.aggregation.at_server import Aggregator, RunningMean
from cutlayer.errors import CredentialError, RefusedError, RollbackError, UnreachableError
from cutlayer.protocol.plan import Step
from cutlayer.protocol.run_codecs import Crossings
from cutlayer.split.aggregate import Weighting, shares
from cutlayer.wire.grpc.connection_errors import explain
from cutlayer.wire.grpc.event_loop import background
from cutlayer.wire.grpc.options import client_options
from cutlayer.wire.messages.protobuf import PACKAGE, message_class
from cutlayer.wire.messages.types import Elsewhere, Message
from cutlayer.wire.security.credentials import ClientSecurity
from cutlayer.wire.transport import Transport

# How often a waiting thread looks whether it was interrupted, and how long it lets an aggregator alone.
_GLANCE, _PAUSE = 0.2, 0.5
# How long an order may take: the clients may be slow to come.
_PATIENCE = 3600.0
# How long a step may still take after Ctrl-C, until the last checkpoint has to do.
_LAST_STEP = 10.0
_KINDS = {"Begin": "Beginning", "Combine": "Combination", "Keep": "Keeping"}
_FINAL = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNIMPLEMENTED)


class Orders:
    """The server's connection to an aggregator."""

    def __init__(self, address: str, security: ClientSecurity) -> None:
        self.address = address
        self.interrupted: Callable[[], bool] = lambda: False
        self.note: Callable[[str], None] = lambda text: None
        self._security = security
        self._channel: Any = background().run(self._open())

    def give(self, method: str, **order: Any) -> None:
        """Have something done, and wait for it. An aggregator that is not there yet is waited for."""
        work = self._begin if method == "Begin" else self._give
        done = background().start(work(method, message_class(_KINDS[method])(**order)))
        # Nothing is under way before Begin; anything else belongs to a step, which should end.
        left = 0.0 if method == "Begin" else _LAST_STEP
        while not concurrent.futures.wait([done], _GLANCE).done:
            if self.interrupted():
                left -= _GLANCE
                if left <= 0:
                    done.cancel()
                    raise KeyboardInterrupt
        done.result()

    def close(self) -> None:
        """Hang up."""
        background().run(self._channel.close())

    async def _open(self) -> Any:
        try:
            return self._security.channel(self.address, client_options())
        except CredentialError as error:
            raise CredentialError(f"the aggregator: {error}. Its CA is given with --aggregator-ca") from None

    async def _begin(self, method: str, order: Any) -> None:
        told = ""
        while True:
            try:
                return await self._give(method, order)
            except UnreachableError as error:
                if str(error) != told:
                    told = str(error)
                    self.note(f"the aggregator: {told}; trying again")
            await asyncio.sleep(_PAUSE)

    async def _give(self, method: str, order: Any) -> None:
        call = self._channel.unary_unary(
            f"/{PACKAGE}.Aggregation/{method}",
            request_serializer=type(order).SerializeToString,
            response_deserializer=message_class("Done").FromString,
        )
        try:
            await call(order, metadata=self._security.metadata, timeout=_PATIENCE)
        except grpc.aio.AioRpcError as error:
            if error.code() in _FINAL:
                # The same order would fail again.
                raise RefusedError(f"the aggregator at {self.address}: {error.details()}") from None
            why = await asyncio.to_thread(explain, error, self.address, self._security)
            if isinstance(why, CredentialError):
                raise CredentialError(f"the aggregator: {why}") from None
            if method == "Begin" and error.code() == grpc.StatusCode.UNAVAILABLE:
                raise why from None
            await asyncio.sleep(_PAUSE)
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
