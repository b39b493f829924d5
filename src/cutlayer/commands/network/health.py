"""`cutlayer health`: asks a server whether it is well, for probes of containers and clusters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cutlayer.commands import show
from cutlayer.commands.network.credentials import NETWORK
from cutlayer.commands.network.monitoring import silence_grpc
from cutlayer.commands.options import Flag, Quiet
from cutlayer.imports import need


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("health")(health)


def health(
    address: Annotated[str, typer.Argument(help="the server", metavar="HOST:PORT")],
    *,
    ca: Annotated[
        Path | None, Flag(help="the CA of the server's certificate", rich_help_panel=NETWORK)
    ] = None,
    cert: Annotated[
        Path | None, Flag(help="mutual TLS: a client's certificate", rich_help_panel=NETWORK)
    ] = None,
    key: Annotated[Path | None, Flag(help="the certificate's key", rich_help_panel=NETWORK)] = None,
    insecure: Annotated[
        bool, Flag("--insecure", help="ask beyond loopback without TLS", rich_help_panel=NETWORK)
    ] = False,
    timeout: Annotated[float, Flag(help="seconds to wait for the answer", min=0.1, metavar="S")] = 5.0,
    quiet: Quiet = False,
) -> None:
    """Ask a server whether it is serving; exit code 0 if it is.

    It calls the standard gRPC health service, which `cutlayer serve`,
    `serve-inference` and `aggregate` have on their port, and needs no token.
    Probes of containers can run it: a kubelet's own gRPC probe knows no TLS.

    \b
    Examples:
      cutlayer health 127.0.0.1:50551
      cutlayer health localhost:50551 --ca ca.pem --quiet
    """
    silence_grpc()
    need("grpc", "asking a server", "network")
    from cutlayer.wire.grpc.health import check_health
    from cutlayer.wire.security.credentials import ClientSecurity

    # No token: whoever asks need not be known.
    security = ClientSecurity.load(ca, cert, key, token_env="", insecure=insecure)
    serving = check_health(address, security, timeout)
    if not quiet:
        show.say(f"{address} is {'serving' if serving else 'not serving'}")
    if not serving:
        raise typer.Exit(1)
