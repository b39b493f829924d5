"""The proxy does what it is told, or the tests that rely on it would prove nothing."""

import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

DATA = bytes(range(256)) * 400  # 100 kB


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        try:
            while data := self.request.recv(65536):
                self.request.sendall(data)
        except OSError:
            return


@pytest.fixture
def echo() -> Iterator[int]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def exchange(end: socket.socket, data: bytes) -> bytes:
    sender = threading.Thread(target=end.sendall, args=(data,))
    sender.start()
    got = b""
    while len(got) < len(data):
        piece = end.recv(65536)
        if not piece:
            break
        got += piece
    sender.join()
    return got


def test_it_forwards_unharmed(proxy_class: Any, echo: int) -> None:
    with proxy_class(echo) as proxy:
        with connect(proxy.port) as one, connect(proxy.port) as two:
            assert exchange(one, DATA) == DATA
            assert exchange(two, b"x") == b"x"
            assert proxy.connections == 2
        deadline = time.monotonic() + 60
        while proxy.connections and time.monotonic() < deadline:
            time.sleep(0.01)
        assert proxy.connections == 0


def test_it_resets_and_refuses(proxy_class: Any, echo: int) -> None:
    with proxy_class(echo) as proxy:
        with connect(proxy.port) as one:
            assert exchange(one, b"x") == b"x"
            assert proxy.reset_all() == 1
            with pytest.raises(ConnectionResetError):
                one.recv(1)
        proxy.refuse()
        with pytest.raises(ConnectionResetError), connect(proxy.port) as two:
            two.recv(1)
        proxy.refuse(False)
        with connect(proxy.port) as three:
            assert exchange(three, b"y") == b"y"


def test_it_freezes_and_thaws(proxy_class: Any, echo: int) -> None:
    with proxy_class(echo) as proxy, connect(proxy.port) as end:
        assert exchange(end, b"x") == b"x"
        proxy.freeze()
        end.sendall(b"late")
        end.settimeout(0.2)
        with pytest.raises(TimeoutError):
            end.recv(4)
        end.settimeout(60)
        proxy.thaw()
        assert end.recv(4) == b"late"
        proxy.freeze(0.1)
        assert exchange(end, b"y") == b"y"


def test_it_damages_the_same_bits_for_the_same_seed(proxy_class: Any, echo: int) -> None:
    def damage(seed: int) -> list[bytes]:
        with proxy_class(echo, seed=seed) as proxy, connect(proxy.port) as end:
            proxy.corrupt(0.5)
            got = [exchange(end, b"\0" * 8) for _ in range(20)]
            assert proxy.damaged > 0
            return got

    first = damage(7)
    assert any(piece != b"\0" * 8 for piece in first)
    assert first == damage(7)


def test_it_delays_and_throttles(proxy_class: Any, echo: int) -> None:
    with proxy_class(echo) as proxy, connect(proxy.port) as end:
        proxy.delay(0.1)
        began = time.monotonic()
        assert exchange(end, b"x") == b"x"
        assert time.monotonic() - began >= 0.2
        proxy.delay(0)
        proxy.throttle(400_000)
        began = time.monotonic()
        assert exchange(end, DATA) == DATA
        assert time.monotonic() - began >= 0.2
        proxy.throttle(None)
        assert exchange(end, DATA) == DATA


def test_a_server_that_is_down_is_a_reset(proxy_class: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with proxy_class(port) as proxy, pytest.raises(ConnectionResetError), connect(proxy.port) as end:
        end.recv(1)
