"""A TCP proxy that does to connections what bad networks do.

It stands between clients and a server on loopback, in a thread with an event loop of its own, and can be told
at any time, from any thread, to reset, freeze, delay, damage or throttle what passes through it:

    with Proxy(server_port, seed=7) as proxy:
        ...connect to proxy.port...
        proxy.reset_all()

What is damaged is drawn from the seed, so a test that fails can be repeated.
"""

import asyncio
import contextlib
import random
import socket
import struct
import threading
from concurrent.futures import Future
from typing import Any

CHUNK = 1 << 16


class Proxy:
    """Forwards `port` to `target_port`, both on 127.0.0.1."""

    def __init__(self, target_port: int, seed: int = 0) -> None:
        self.target_port = target_port
        self.port = 0
        self.accepted = 0
        self.damaged = 0
        self._random = random.Random(seed)
        self._writers: set[asyncio.StreamWriter] = set()
        self._seconds = 0.0
        self._probability = 0.0
        self._rate: float | None = None
        self._refusing = False
        self._flowing: asyncio.Event
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._started: Future[int] = Future()

    def start(self) -> "Proxy":
        """Listen on a free port."""
        self._thread.start()
        self.port = self._started.result(10)
        return self

    def stop(self) -> None:
        """Close everything."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)

    def __enter__(self) -> "Proxy":
        return self.start()

    def __exit__(self, *error: Any) -> None:
        self.stop()

    @property
    def connections(self) -> int:
        """How many connections there are now."""
        return self._call(lambda: len(self._writers) // 2)

    def reset_all(self) -> int:
        """Cut all connections hard (RST to both sides); new ones are welcome. Says how many there were."""
        return self._call(self._reset)

    def freeze(self, seconds: float | None = None) -> None:
        """Let nothing through: connections stay open and silent, for some time or until `thaw`."""
        self._call(lambda: self._flowing.clear())
        if seconds is not None:
            self._loop.call_soon_threadsafe(lambda: self._loop.call_later(seconds, self._flowing.set))

    def thaw(self) -> None:
        """Let everything through again, what waited first."""
        self._call(lambda: self._flowing.set())

    def delay(self, seconds: float) -> None:
        """Hold every chunk for so long."""
        self._call(lambda: setattr(self, "_seconds", seconds))

    def corrupt(self, probability: float) -> None:
        """Flip one bit of a chunk with this probability."""
        self._call(lambda: setattr(self, "_probability", probability))

    def throttle(self, bytes_per_second: float | None) -> None:
        """Let so many bytes a second through in each direction of each connection; None: all of them."""
        self._call(lambda: setattr(self, "_rate", bytes_per_second))

    def refuse(self, refusing: bool = True) -> None:
        """Reset new connections at once, as if the cable were out."""
        self._call(lambda: setattr(self, "_refusing", refusing))

    def _call(self, function: Any) -> Any:
        """Do something on the proxy's loop and wait until it is done."""
        done: Future[Any] = Future()

        def do() -> None:
            try:
                done.set_result(function())
            except Exception as error:
                done.set_exception(error)

        self._loop.call_soon_threadsafe(do)
        return done.result(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            server = self._loop.run_until_complete(self._listen())
            self._loop.run_forever()
            server.close()
            self._reset()
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
            raise
        finally:
            self._loop.close()

    async def _listen(self) -> asyncio.Server:
        self._flowing = asyncio.Event()
        self._flowing.set()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._started.set_result(server.sockets[0].getsockname()[1])
        return server

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self._refusing:
            _reset_hard(writer)
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:  # the server is down: so is the proxy, for this client
            _reset_hard(writer)
            return
        ends = {writer, back}
        self._writers |= ends
        try:
            await asyncio.gather(self._forward(reader, back), self._forward(there, writer))
        finally:
            self._writers -= ends
            for end in ends:
                end.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        free = self._loop.time()
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                if self._seconds:
                    await asyncio.sleep(self._seconds)
                if self._rate is not None:
                    free = max(free, self._loop.time()) + len(data) / self._rate
                    await asyncio.sleep(free - self._loop.time())
                await self._flowing.wait()
                writer.write(self._maybe_damaged(data))
                await writer.drain()
        # An end of one direction ends the connection: gRPC has no use for half of one.
        writer.close()

    def _maybe_damaged(self, data: bytes) -> bytes:
        if self._random.random() >= self._probability:
            return data
        self.damaged += 1
        flipped = bytearray(data)
        flipped[self._random.randrange(len(data))] ^= 1 << self._random.randrange(8)
        return bytes(flipped)

    def _reset(self) -> int:
        count = len(self._writers) // 2
        for writer in self._writers:
            _reset_hard(writer)
        return count


def _reset_hard(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            # Linger of zero: RST instead of FIN, and what was buffered is lost.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
