"""What the server knows of one client, and of the connection that it has at the moment."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cutlayer.wire.activity import Activity
from cutlayer.wire.grpc.retransmit import Reliable
from cutlayer.wire.link.model import Link
from cutlayer.wire.messages.protobuf import message_class

# How many earlier processes of one client are remembered.
_SPENT = 999


class Stream:
    """One connection. `control` goes out before data; after a Goodbye nothing does."""

    def __init__(self, wake: Callable[[Callable[[], object]], None]) -> None:
        self.control: deque[Any] = deque()
        self.cursor = 0
        """The number of the last Data message that was written."""
        self.conversation: Reliable | None = None
        self.link: Link | None = None
        self.takes_several = False
        """Whether the client takes several messages in one Data."""
        self.woken = asyncio.Event()
        self.ending = asyncio.Event()
        self._wake = wake

    def wake(self) -> None:
        """There is something to write. From any thread."""
        self._wake(self.woken.set)

    def say(self, **content: Any) -> None:
        """Queue a control message, as `say(welcome=...)`."""
        self.control.append(message_class("Down")(**content))
        self.wake()

    def end(self, code: str, reason: str) -> None:
        """Say goodbye; the writer then closes the stream."""
        goodbye = message_class("Goodbye")
        self.say(goodbye=goodbye(code=goodbye.Code.Value(code), reason=reason))
        self._wake(self.ending.set)


@dataclass(slots=True)
class Peer:
    """One client of the run.

    It is *absent* without a stream; *waiting* when its stream is ready; a *member* of the present era while
    it has a conversation, connected or not.
    """

    number: int
    stream: Stream | None = None
    incarnation: bytes = b""
    attempt: int = 0
    spent: tuple[bytes, ...] = ()
    """Earlier incarnations. A Hello of theirs is a replay."""
    ready: Any = None
    """What the waiting stream has told about its data."""
    conversation: Reliable | None = None
    inbox: list[memoryview] = field(default_factory=list)
    failure: Any = None
    activity: Activity = field(default_factory=Activity)

    @property
    def waiting(self) -> bool:
        """Whether it could be admitted."""
        return self.stream is not None and self.ready is not None and self.conversation is None

    def put_message(self, data: memoryview) -> None:
        """A message that nobody has asked for yet."""
        self.inbox.append(data)

    def take_message(self) -> memoryview | None:
        """The oldest of them; None if there is none. Needs no lock: taking from a list is atomic."""
        try:
            return self.inbox.pop(0)
        except IndexError:
            return None

    @property
    def inbox_bytes(self) -> int:
        """How many bytes they take."""
        return sum(map(len, self.inbox))

    def spend(self) -> None:
        """Take no Hello of the present incarnation any more."""
        self.spent = (*self.spent[-_SPENT:], self.incarnation)

    def forget_messages(self) -> None:
        """Nothing that has come counts any more."""
        self.inbox.clear()

    def take(self, stream: Stream, hello: Any) -> None:
        """Its connection is now this one, which began with that Hello."""
        if self.stream is not None:
            self.stream.end("AGAIN", "replaced by a newer connection")
        self.stream, self.incarnation, self.attempt = stream, hello.incarnation, hello.attempt
        self.activity.greeted()

    def retire(self, code: str, reason: str) -> None:
        """It is no member any more; if it is connected, tell it why."""
        self.conversation = None
        self.forget_messages()
        self.failure = None
        self.ready = None
        if self.stream is not None:
            self.stream.end(code, reason)
            self.stream = None

    def admit(self, **welcome: Any) -> None:
        """Make a waiting client a member."""
        if self.stream is None:
            raise RuntimeError("only a waiting client can be admitted")
        self.conversation = self.stream.conversation = Reliable()
        self.stream.cursor = 0
        self.forget_messages()
        self.stream.say(welcome=message_class("Welcome")(**welcome))

    def to_json(self) -> dict[str, Any]:
        """The client as it is now, as plain JSON: for whoever watches the run."""
        link = None if self.stream is None else self.stream.link
        return {
            "client": self.number,
            "connected": self.stream is not None,
            "member": self.conversation is not None,
            "waiting": self.waiting,
            "link": "" if link is None else str(link),
            **self.activity.to_json(),
        }
