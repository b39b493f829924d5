"""`aggregate`: the aggregator in a process of its own, so that the split server never holds clients' weights.

Clients send it what they share; the split server tells it whose shares make a mean and who gets it. It
keeps the clients' states at checkpoints, in a directory of its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from torch import Tensor

from cutlayer.aggregation.at_server import Aggregator, RunningMean
from cutlayer.config.schema import Config
from cutlayer.errors import (
    CheckpointError,
    ConfigError,
    CredentialError,
    CutlayerError,
    FrameError,
    MessageError,
    RollbackError,
)
from cutlayer.interrupt import Interrupt
from cutlayer.protocol.build import make_client, prepare_model, shared_sizes
from cutlayer.protocol.handshake import Fits, data_spec_of, digest, settings_for_clients
from cutlayer.protocol.plan import Step
from cutlayer.protocol.run_codecs import Crossings
from cutlayer.protocol.state_bytes import from_bytes, to_bytes
from cutlayer.split.state import under
from cutlayer.training import checkpoint
from cutlayer.training.serve import SPLIT_SERVER, Listening, check_names, running
from cutlayer.wire.grpc.transport import Hub
from cutlayer.wire.messages.protobuf import PACKAGE, message_class
from cutlayer.wire.messages.types import Share, State, SyncUp


@dataclass
class Averaging:
    """Does what the split server orders, one thing at a time."""

    config: Config
    hub: Hub
    directory: Path
    note: Callable[[str], None] = lambda text: None
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.crossings = Crossings(self.config.codec, self.config.seed)
        self.aggregator = Aggregator(self.crossings, self.config.train.weighting)
        self.digest = digest(settings_for_clients(self.config))

    def begin(self, order: Any) -> None:
        """Everybody goes on from a step; the first time from the very beginning."""
        if order.digest != self.digest:
            raise CutlayerError(
                "the split server has other settings than the aggregator; start both with the same ones"
            )
        kept = None
        if order.step:
            path = checkpoint.path_of(self.directory, order.step)
            if not path.exists():
                raise CheckpointError(
                    f"the aggregator has no checkpoint of step {order.step}; is --out right?"
                )
            kept = checkpoint.load(path)
        self.aggregator.restore({} if kept is None else kept.tensors)
        self.hub.dismiss("AGAIN", f"the run goes on from step {order.step}")
        self._expect_sizes(self.hub.assemble())
        self.hub.begin(order.step, order.era)
        if kept is not None:
            for client in range(self.config.train.clients):
                body = to_bytes(under(f"client.{client}.", kept.tensors))
                self.hub.send(client, State(order.step, body))
        self.note(f"averaging for {self.config.train.clients} clients from step {order.step}")

    def _expect_sizes(self, clients: Sequence[Any]) -> None:
        """The model follows from the settings and the data's form: what clients share has its size."""
        parts = prepare_model(self.config, data_spec_of(clients).placeholder_data().train)[1]
        self.crossings.sizes = shared_sizes(make_client(self.config, parts))
        self.crossings.limit = max(*self.crossings.sizes, 1)

    def combine(self, order: Any) -> None:
        """A mean of what clients have shared, in the order's order, to its recipients."""
        if len(order.clients) != len(order.weights) or not order.clients:
            raise MessageError("an order names clients and as many weights")
        step = Step(order.number, order.epoch, order.step, (), (), order.lr, Share.NOTHING, False)
        mean = RunningMean(self.crossings, order.weights)
        for client in order.clients:
            message = self.hub.receive(client)
            if not isinstance(message, SyncUp) or message.number != order.number:
                self.hub.fault(client, MessageError(f"a {type(message).__name__} instead of what it shares"))
            try:
                if order.handover:
                    self.aggregator.check(message, client)
                    self.aggregator.hand_over(message, client, step, order.recipients[0], self.hub)
                    return
                mean.add(message, client)
            except (MessageError, FrameError) as error:
                self.hub.fault(client, error)
                raise
        if order.evaluation:
            self.aggregator.deliver_for_evaluation(mean, order.number, order.recipients[0], self.hub)
        else:
            self.aggregator.deliver(mean, step, order.recipients, self.hub)

    def keep(self, order: Any) -> None:
        """Store the states that all clients have sent."""
        tensors: dict[str, Tensor] = self.aggregator.state()
        for client in range(self.config.train.clients):
            message = self.hub.receive(client)
            if not isinstance(message, State):
                self.hub.fault(client, MessageError(f"a {type(message).__name__} instead of its state"))
                continue
            tensors |= {f"client.{client}.{k}": t for k, t in from_bytes(message.body).items()}
        checkpoint.save(self.directory, order.step, tensors, {}, self.config.identity())
        checkpoint.keep(self.directory, self.config.output.keep + 1)

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
                except CutlayerError as error:
                    self.note(str(error))
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

    def _one(self, work: Callable[[Any], None], order: Any) -> None:
        try:
            with self._turn:
                work(order)
        except KeyboardInterrupt:  # not in a thread that nobody interrupts
            raise RollbackError("the aggregator stops") from None


def aggregate(
    config: Config, listening: Listening, directory: Path, *, note: Callable[[str], None] = lambda text: None
) -> None:
    """Average until Ctrl-C."""
    if config.train.aggregation == "allreduce":
        raise ConfigError(
            "with train.aggregation = allreduce clients need no aggregator; set train.aggregation to server"
        )
    check_names(config, listening)
    tokens = listening.security.tokens
    if tokens is not None and SPLIT_SERVER not in tokens.hashes:
        raise ConfigError(
            f"no token is {SPLIT_SERVER!r}'s, so nobody could give orders; make one with: cutlayer certs "
            f"token {SPLIT_SERVER}, and give its file to `cutlayer serve` with --aggregator-token"
        )
    hub = Hub(config.train.clients, listening.policy, listening.limits, Fits(config, evaluator=False))
    hub.note = note
    averaging = Averaging(config, hub, directory, note)
    handler = averaging.handler(listening.security.identify)
    with suppress(KeyboardInterrupt), Interrupt() as interrupt, running(hub, config, listening, handler):
        hub.interrupted = lambda: interrupt.requested
        while not interrupt.requested:
            time.sleep(0.2)
        raise KeyboardInterrupt
