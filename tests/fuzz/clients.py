"""The clients of a fuzzed run: real client code on a thread, behind the server's real connection handling."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from packets import Damaged, opened, sealed  # type: ignore[import-not-found]

from cutlayer.client.split_client import SplitClient
from cutlayer.errors import CutlayerError, MessageError
from cutlayer.wire.grpc.peer import Stream
from cutlayer.wire.grpc.service import Service
from cutlayer.wire.grpc.transport import GrpcTransport
from cutlayer.wire.messages.base import Message, pack
from cutlayer.wire.messages.types import unpack

NEVER = 1 << 30
#: Models are built and clients compute one at a time: PyTorch's generator and torch.fx belong to the process.
COMPUTING = threading.Lock()
Lie = Callable[[list[Message]], "list[bytes] | Damaged | None"]


class Clients(threading.Thread):
    """All clients of a sequence, on a thread of their own, behind the server's real conversations."""

    def __init__(
        self, transport: GrpcTransport, make: Callable[[int], SplitClient], ready: Callable[[int], Any]
    ) -> None:
        super().__init__(daemon=True)
        self.transport, self.make, self.ready = transport, make, ready
        self.liar = 2
        self.lie: Lie | None = None
        self.late: int | None = None
        """Who comes only when the run has begun."""
        self.lies_of_data: list[Callable[[Any], Any]] = []
        """What the one who is late says of its data first."""
        self._service = Service(transport, "")
        self.lie_at = NEVER
        self.lied_in = ""
        self.answered = 0
        self.error: BaseException | None = None
        self.over = threading.Event()
        self._clients: dict[int, tuple[Any, SplitClient, int, int]] = {}

    def come(self, number: int, change: Callable[[Any], Any] = lambda ready: ready) -> None:
        """A client connects, begins anew, and has its data, of which it says what `change` makes of it."""
        hello = SimpleNamespace(incarnation=secrets.token_bytes(16), attempt=1, era="", received=0)
        with self.transport.lock:
            self.transport.greet(number, hello, Stream(lambda function: None))
            self.transport.prepared(number, change(self.ready(number)))

    def _come_late(self, number: int) -> None:
        """A client comes to a run that has begun: with lies, which are refused, and then as it should."""
        for change in self.lies_of_data:
            try:
                self.come(number, change)
                raise AssertionError("a lie about data was believed")
            except CutlayerError:
                with self.transport.lock:
                    self.transport.lost(number, self.transport.peers[number].stream)  # type: ignore[arg-type]
        self.come(number)

    def run(self) -> None:
        try:
            if self.late is not None:
                self._come_late(self.late)
            while not self.over.is_set():
                if not any(self._serve(number) for number in range(self.transport.clients)):
                    time.sleep(0.0005)
        except BaseException as error:  # the harness itself broke: the sequence has failed
            self.error = error

    def _serve(self, number: int) -> bool:
        with self.transport.lock:
            peer = self.transport.peers[number]
            conversation, stream = peer.conversation, peer.stream
        if stream is None and self.transport.patient:
            # Whoever was sent away, or has to come again: an honest process comes in its place.
            self.lie_at = NEVER if number == self.liar else self.lie_at
            self.come(number)
            return True
        if conversation is None:
            return False
        held = self._clients.get(number)
        if held is None or held[0] is not conversation:
            held = (conversation, self.make(number), 0, 0)
        _, client, cursor, sent = held
        found = next(iter(conversation.batch(cursor, several=False)), None)
        if found is None:
            self._clients[number] = (conversation, client, cursor, sent)
            return False
        cursor, parts = found.number, found.parts
        with COMPUTING:
            answers = list(client.handle(unpack(b"".join(parts))))
        out: list[bytes] | Damaged = [b"".join(pack(answer)) for answer in answers]
        if answers and number == self.liar:
            self.answered += 1
            if self.answered > self.lie_at and self.lie is not None:
                changed = self.lie(answers)
                if changed is not None:
                    self.lied_in, self.lie = type(answers[0]).__name__, None
                    out = changed
        honest = out if isinstance(out, list) else out.honest
        # Answers go out together, as a client's do.
        packets = (
            [sealed(sent + 1, cursor, honest)] if isinstance(out, list) else [out.bytes(sent + 1, cursor)]
        )
        for data in packets if honest else []:
            try:
                up = opened(data)
            except MessageError:
                # gRPC ends a stream that cannot be read. The client comes back and sends it again.
                up = opened(sealed(sent + 1, cursor, honest))
            with self.transport.lock:
                try:
                    self._service._take(up, SimpleNamespace(conversation=conversation), number)
                except MessageError as error:
                    if peer.conversation is conversation:
                        self.transport.expel(number, str(error))
        sent += len(honest)
        with self.transport.lock:
            conversation.confirm(cursor)
        self._clients[number] = (conversation, client, cursor, sent)
        return True
