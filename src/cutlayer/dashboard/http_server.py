"""The dashboard's web server: where it listens, and until when."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cutlayer.dashboard.access import Access, KnownTokens, load_tokens
from cutlayer.dashboard.live import EVERY
from cutlayer.errors import CredentialError
from cutlayer.imports import need
from cutlayer.wire.address import bind_error, is_loopback, parse_address

_CONNECTIONS = 128


@dataclass(frozen=True)
class Place:
    """Where the dashboard listens, and with which credentials."""

    address: str = "127.0.0.1:8080"
    cert: Path | None = None
    key: Path | None = None
    tokens: Path | None = None

    @staticmethod
    def parse(
        text: str, cert: Path | None = None, key: Path | None = None, tokens: Path | None = None
    ) -> Place:
        """The place of `8080` or `HOST:8080`. Without TLS and tokens it must be on loopback."""
        address = f"127.0.0.1:{text}" if text.isdecimal() else text
        host, _ = parse_address(address)
        if (cert is None) != (key is None):
            raise CredentialError("a certificate and its key belong together: give both --cert and --key")
        if not is_loopback(host) and (cert is None or tokens is None):
            raise CredentialError(
                f"will not show the dashboard on {address}: others can reach it, and it needs a certificate "
                "(--cert and --key) and a file of tokens for those who may look; `cutlayer certs` makes "
                "both. Or show it on 127.0.0.1, and look through ssh -L"
            )
        return Place(address, cert, key, tokens)

    @property
    def local(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(parse_address(self.address)[0])

    def listen(self) -> socket.socket:
        """A socket that listens there."""
        host, port = parse_address(self.address)
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((host, port), family=family, backlog=64)
        except (OSError, OverflowError) as error:
            raise bind_error(self.address) from error

    def url(self, port: int) -> str:
        """What to type into a browser."""
        host, _ = parse_address(self.address)
        shown = f"[{host}]" if ":" in host else socket.gethostname() if host == "0.0.0.0" else host
        return f"{'https' if self.cert else 'http'}://{shown}:{port}/"


def run_dashboard(
    directory: Path, place: Place, ready: Callable[[str], None], attached: IO[bytes] | None = None
) -> None:
    """Show a run until Ctrl-C; with `attached`, until that stream ends, as when its owner ends."""
    uvicorn = need("uvicorn", "the dashboard", "dashboard")
    need("starlette", "the dashboard", "dashboard")
    from cutlayer.dashboard.app import dashboard_app
    from cutlayer.dashboard.live import Live
    from cutlayer.dashboard.watcher import Watcher

    known: KnownTokens | None = None if place.tokens is None else load_tokens(place.tokens)
    if place.cert is not None and place.key is not None:
        from cutlayer.wire.security.pem import check_pair

        check_pair(place.cert, place.key)
    listening = place.listen()
    port = int(listening.getsockname()[1])
    app = dashboard_app(Live(Watcher(directory)), Access(place.address, known))
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="critical",
            access_log=False,
            lifespan="off",
            server_header=False,
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=1,
            ssl_certfile=None if place.cert is None else str(place.cert),
            ssl_keyfile=None if place.key is None else str(place.key),
        )
    )
    if attached is not None:
        threading.Thread(target=_stop_behind, args=(server, attached), daemon=True).start()
    ready(place.url(port))
    with listening:
        asyncio.run(server.serve(sockets=[listening]))


def _stop_behind(server: object, attached: IO[bytes]) -> None:
    """Stop when the stream ends, after pages have had time to get the last state."""
    attached.read()
    threading.Event().wait(4 * EVERY)
    server.should_exit = True  # type: ignore[attr-defined]
