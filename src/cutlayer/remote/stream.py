"""The client's requests on their way: sent, kept until they are answered, and sent again where needed.

After a broken connection the transport goes on where it was. A server that was started anew knows nothing of
what was on its way; it gets again every request whose gradients have not reached its weights.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from cutlayer.errors import CutlayerError, MessageError, NetworkError, RefusedError
from cutlayer.remote.offer import RemoteOffer, digest
from cutlayer.wire.grpc.connection import Connection, Event
from cutlayer.wire.grpc.retransmit import Reliable
from cutlayer.wire.link.model import Link
from cutlayer.wire.messages.base import Message, pack
from cutlayer.wire.messages.protobuf import message_class
from cutlayer.wire.messages.remote_loop import Backward, Forward, InputGradients, Leave, Outputs, Rejected
from cutlayer.wire.messages.types import unpack
from cutlayer.wire.meter import Direction, Meter
from cutlayer.wire.security.credentials import ClientSecurity
from cutlayer.wire.text import plain_text

M = TypeVar("M", Outputs, InputGradients)
# How often a waiting thread can be interrupted, in seconds, and how long a goodbye may take.
_GLANCE, _FAREWELL = 0.2, 10.0


@dataclass
class _Request:
    """A batch that the server may have to be told again."""

    forward: Forward
    backward: Backward | None = None
    answers: list[Message] = field(default_factory=list)
    waited: bool = False


class RequestStream:
    """One client's connection to a `RemoteServer`. One thread uses it at a time."""

    def __init__(
        self,
        address: str,
        security: ClientSecurity,
        *,
        claims: int | None,
        retry: float,
        link: Link | None,
        note: Callable[[str], None],
    ) -> None:
        self.address = address
        self.meter = Meter()
        self.client = 0
        self._requests: OrderedDict[int, _Request] = OrderedDict()
        self._settings = ""
        self._offer: RemoteOffer | None = None
        self._rejected: CutlayerError | None = None
        """Of a request for whose answer nobody waited; whoever asks next is told."""
        self._over: CutlayerError | None = None
        self._leaving = False
        self._conversation: Reliable | None = None
        """The one whose welcome was taken: what was asked before that is sent then."""
        self._connection = Connection(
            address, security, claims=claims, retry=retry, note=note, link=link, keeps_place=True
        )

    @property
    def offer(self) -> RemoteOffer:
        """What the server takes. Waits for its offer."""
        while self._offer is None:
            self._take()
        return self._offer

    def forward(self, message: Forward) -> Outputs:
        """The answer to a batch."""
        while len(self._requests) >= self.offer.open:
            # The server has dropped it, too: nobody may come back to it.
            self._requests.popitem(last=False)
        self._requests[message.number] = _Request(message)
        self._send(message)
        found = self._answer(message.number, Outputs)
        if not message.gradient:
            del self._requests[message.number]
        return found

    def backward(self, message: Backward, *, wait: bool) -> InputGradients | None:
        """Tell the server the gradient of a batch; with `wait`, its answer."""
        request = self._requests.get(message.number)
        if request is None or request.backward is not None:
            raise MessageError(
                f"batch {message.number} cannot go backward at {self.address}: it did before, or "
                f"{self.offer.open} later ones went forward since"
            )
        request.backward = message
        self._send(message)
        return self._answer(message.number, InputGradients) if wait else None

    def close(self, *, finished: bool) -> None:
        """Leave: with `finished` for good, when all gradients have arrived."""
        try:
            if finished and self._over is None:
                self._finish(time.monotonic() + _FAREWELL)
        finally:
            self._over = self._over or NetworkError(f"{self.address}: the connection is closed")
            self._connection.close()

    def _finish(self, deadline: float) -> None:
        self._leaving = True
        while any(r.backward is not None for r in self._requests.values()) and time.monotonic() < deadline:
            self._take(deadline)
        self._connection.send(self._conversation, pack(Leave(0)))
        while self._over is None and time.monotonic() < deadline:
            with contextlib.suppress(NetworkError):  # the server's goodbye, as a rule
                self._take(deadline)

    def _send(self, message: Message) -> None:
        rejected, self._rejected = self._rejected, None
        if self._over is not None or rejected is not None:
            raise (self._over or rejected)  # type: ignore[misc]
        self.meter.add_all(message.sizes(), Direction.UP)
        self._connection.send(self._conversation, pack(message))

    def _answer(self, number: int, kind: type[M]) -> M:
        request = self._requests[number]
        request.waited = True
        while True:
            for answer in request.answers:
                if isinstance(answer, Rejected):
                    self._requests.pop(number, None)
                    raise self._refusal(answer)
                if isinstance(answer, kind):
                    request.waited = False
                    return answer
            self._take()

    def _take(self, deadline: float | None = None) -> None:
        """Wait for one event and act on it."""
        if self._over is not None:
            raise self._over
        while True:
            try:
                event = self._connection.events.get(timeout=_GLANCE)
                break
            except queue.Empty:
                if deadline is not None and time.monotonic() > deadline:
                    return
        if event.kind == "offer":
            self._offered(event)
        elif event.kind == "welcome":
            self._conversation = event.conversation
            for request in self._requests.values():
                for message in (request.forward, request.backward):
                    if message is not None:
                        self._connection.send(event.conversation, pack(message))
            if self._leaving:
                self._connection.send(event.conversation, pack(Leave(0)))
        elif event.kind == "data":
            if event.conversation is self._conversation:
                try:
                    self._arrived(unpack(event.content))
                except MessageError as error:
                    raise MessageError(f"{self.address}: {error}") from error
        else:
            self._over = (
                event.content
                if event.kind == "lost"
                else RefusedError(f"{self.address}: {event.content[1]} ({event.content[0].lower()})")
            )
            raise self._over

    def _offered(self, event: Event) -> None:
        offer = event.content
        if self._settings and (self._settings, self.client) != (offer.settings, offer.client):
            raise RefusedError(
                f"{self.address}: the server now offers another part, or another place; connect again"
            )
        self._offer = RemoteOffer.parse(offer.settings, self.address)
        self._settings, self.client = offer.settings, offer.client
        self._connection.prepared(event, message_class("Ready")(digest=digest(offer.settings)))

    def _arrived(self, message: Message) -> None:
        self.meter.add_all(message.sizes(), Direction.DOWN)
        if not isinstance(message, Outputs | InputGradients | Rejected):
            raise MessageError(f"the server sent a {type(message).__name__}, which is no answer")
        request = self._requests.get(message.number)
        if request is None:
            return  # of a batch that was sent again after the server had answered
        # One of a kind: it comes again after the server was started anew, or as often as a liar likes.
        request.answers = [known for known in request.answers if type(known) is not type(message)]
        request.answers.append(message)
        if isinstance(message, InputGradients):
            del self._requests[message.number]
        elif isinstance(message, Rejected) and not request.waited:
            del self._requests[message.number]
            self._rejected = self._refusal(message)

    def _refusal(self, message: Rejected) -> RefusedError:
        why = plain_text(message.body[:4000].decode("utf-8", "replace"))
        return RefusedError(f"{self.address}: batch {message.number}: {why}")
