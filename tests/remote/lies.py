"""What a client sends that no honest one would, past its own checks."""

from typing import Any

import pytest

import cutlayer
from cutlayer.errors import RefusedError
from cutlayer.wire.messages.base import Message, pack
from tests.waiting import until


def refused(remote: cutlayer.Remote, message: Message, said: str) -> None:
    """Send a message; the server says why it is none, and hangs up."""
    remote._stream._connection.send(remote._stream._conversation, pack(message))
    with pytest.raises(RefusedError, match=said):
        _listen(remote)
    remote._stream.close(finished=False)


def another_comes_and_goes(served: Any) -> None:
    """The place of a client that was cut off is free, as soon as the server has seen that it is gone."""

    def visit() -> bool:
        try:
            with served.connect():
                return True
        except RefusedError:
            return False

    until(visit, "the place is free")
    served.join()


def _listen(remote: cutlayer.Remote) -> None:
    while True:
        remote._stream._take()
