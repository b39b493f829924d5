"""The transport of a server whose clients ask: it waits for whoever speaks, and nobody's word ends it."""

from typing import Any

from cutlayer.wire.grpc.transport import GrpcTransport


class LoopTransport(GrpcTransport):
    """The server's end of all connections, for loops of clients' own."""

    def wait_for_any(self, after: int) -> int | None:
        """The next client behind `after`, in a circle, from whom a message is there; waits for one.

        None if there are clients to be admitted first.
        """
        with self.lock:
            while True:
                if self.newcomers():
                    return None
                count = len(self.peers)
                for client in ((after + 1 + i) % count for i in range(count)):
                    if self.peers[client].inbox:
                        return client
                self._wait()

    def wait_for_client(self, client: int) -> None:
        """Wait until that client is a member, or could be admitted."""
        with self.lock:
            peer = self.peers[client]
            while peer.conversation is None and not peer.waiting:
                self._wait()

    def release(self, client: int, reason: str) -> None:
        """A client has said that it is done: it is no member any more."""
        with self.lock:
            self.peers[client].retire("DONE", reason)

    def failed(self, client: int, failure: Any) -> None:
        """See `Membership.failed`. Whatever a client says of its training, it is its own."""
        self.expel(client, failure.reason)
