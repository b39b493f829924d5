"""The aggregator in a process of its own, so that the split server never holds clients' weights.

Clients send it what they share; the split server tells it whose shares make a mean and who gets it. It
keeps the clients' states at checkpoints.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import grpc
from torch import Tensor

from cutlayer.aggregation.at_server import ServerAggregation
from cutlayer.aggregation.robust import MeanRule
from cutlayer.errors import (
    CheckpointError,
    CredentialError,
    CutlayerError,
    FileError,
    MessageError,
    RollbackError,
)
from cutlayer.protocol.boundary import Agreed, Boundary
from cutlayer.protocol.plan import Place
from cutlayer.protocol.run_codecs import RunCodecs
from cutlayer.protocol.state_bytes import to_bytes
from cutlayer.split.state import under
from cutlayer.split.weights import Weighting
from cutlayer.wire.grpc.transport import GrpcTransport
from cutlayer.wire.messages.protobuf import PACKAGE, message_class
from cutlayer.wire.messages.types import State, SyncUp

#: The name that the split server's credential has at an aggregator that runs alone.
SPLIT_SERVER = "split-server"


class Store(Protocol):
    """Where the aggregator keeps the clients' states."""

    def load(self, step: int) -> Mapping[str, Tensor] | None:
        """The tensors of a checkpoint; None if there is none of that step."""

    def save(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        """Keep these tensors as the checkpoint of a step."""


class AggregatorService:
    """Does what the split server orders, one thing at a time.

    `derive` gives the run's codecs, with the sizes of what clients share, and what is agreed with them, from
    what they said of their data when they were ready.
    """

    def __init__(
        self,
        transport: GrpcTransport,
        store: Store,
        *,
        digest: str,
        weighting: Weighting,
        rule: MeanRule,
        derive: Callable[[Sequence[Any]], tuple[RunCodecs, Agreed]],
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._transport = transport
        self._store = store
        self._digest = digest
        self._weighting = weighting
        self._rule = rule
        self._derive = derive
        self._note = note
        self._one_at_a_time = threading.Lock()
        self._aggregation: ServerAggregation | None = None

    def begin(self, order: Any) -> None:
        """Everybody goes on from a step; the first time from the very beginning."""
        if order.digest != self._digest:
            raise CutlayerError(
                "the split server has other settings than the aggregator; start both with the same ones"
            )
        kept: Mapping[str, Tensor] = {}
        if order.step:
            found = self._store.load(order.step)
            if found is None:
                raise CheckpointError(
                    f"the aggregator has no checkpoint of step {order.step}; is --out right?"
                )
            kept = found
        self._transport.dismiss("AGAIN", f"the run goes on from step {order.step}")
        codecs, agreed = self._derive(self._transport.assemble())
        self._aggregation = ServerAggregation(codecs, self._weighting, self._transport, self._rule)
        self._aggregation.restore(kept)
        self._boundary = Boundary(self._transport, codecs, agreed)
        self._transport.begin(order.step, order.era)
        if order.step:
            for client in range(self._transport.clients):
                body = to_bytes(under(f"client.{client}.", kept))
                self._transport.send(client, State(order.step, body))
        self._note(f"averaging for {self._transport.clients} clients from step {order.step}")

    def combine(self, order: Any) -> None:
        """A mean of what clients have shared, in the order's order, to its recipients."""
        if len(order.clients) != len(order.weights) or not order.clients:
            raise MessageError("an order names clients and as many weights")
        aggregation = self._begun()
        place = Place(order.number, order.epoch, order.step, order.lr)
        if order.handover:
            client = order.clients[0]
            shared = self._boundary.receive(client, order.number, SyncUp)
            self._boundary.check_shared(client, shared)
            aggregation.hand_over(client, shared, place, order.recipients[0])
            return
        mean = aggregation.weighted(order.weights)
        for client in order.clients:
            shared = self._boundary.receive(client, order.number, SyncUp)
            with self._boundary.blame(client):
                mean.add(client, shared)
        if order.evaluation:
            mean.deliver_exact(order.number, order.recipients[0])
        else:
            mean.deliver(place, order.recipients)

    def keep(self, order: Any) -> None:
        """Store the states that all clients have sent."""
        tensors: dict[str, Tensor] = self._begun().state()
        for client in range(self._transport.clients):
            state = self._boundary.state(client, order.step)
            tensors |= {f"client.{client}.{name}": t for name, t in state.items()}
        self._store.save(order.step, tensors)

    def handler(self, identify: Callable[[Any], str | None]) -> Any:
        """What to give to `grpc.aio.Server.add_generic_rpc_handlers`."""

        def method(work: Callable[[Any], None], kind: str) -> Any:
            async def call(order: Any, context: Any) -> Any:
                try:
                    if identify(context) not in (None, SPLIT_SERVER):
                        raise CredentialError(
                            f"only the split server gives orders; it needs a credential of {SPLIT_SERVER!r}"
                        )
                    await asyncio.to_thread(self._one, work, order)
                except RollbackError as error:
                    await context.abort(grpc.StatusCode.ABORTED, str(error))
                except CredentialError as error:
                    await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
                except (CheckpointError, FileError) as error:
                    self._note(str(error))
                    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
                except CutlayerError as error:
                    self._note(str(error))
                    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
                return message_class("Done")()

            return grpc.unary_unary_rpc_method_handler(
                call,
                request_deserializer=message_class(kind).FromString,
                response_serializer=message_class("Done").SerializeToString,
            )

        methods = {
            "Begin": method(self.begin, "Beginning"),
            "Combine": method(self.combine, "Combination"),
            "Keep": method(self.keep, "Keeping"),
        }
        return grpc.method_handlers_generic_handler(f"{PACKAGE}.Aggregation", methods)

    def _begun(self) -> ServerAggregation:
        if self._aggregation is None:
            raise RollbackError("the aggregator was started anew and has not begun")
        return self._aggregation

    def _one(self, work: Callable[[Any], None], order: Any) -> None:
        try:
            with self._one_at_a_time:
                work(order)
        except KeyboardInterrupt:  # not in a thread that nobody interrupts
            raise RollbackError("the aggregator stops") from None
