"""`cutlayer dashboard`: a page on a run that goes on or has ended."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from cutlayer.commands import show
from cutlayer.commands.options import Flag, RunArgument
from cutlayer.errors import FileError

# Training goes first.
_NICE = 5


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("dashboard")(dashboard)


def dashboard(
    run: RunArgument,
    listen: Annotated[
        str, Flag(help="where to show it: a port of loopback, or an address", metavar="[HOST:]PORT")
    ] = "8080",
    cert: Annotated[Path | None, Flag(help="TLS: the page's certificate")] = None,
    key: Annotated[Path | None, Flag(help="TLS: the certificate's key")] = None,
    tokens: Annotated[Path | None, Flag(help="the file of hashed tokens of those who may look")] = None,
    attached: Annotated[bool, Flag("--attached", hidden=True)] = False,
) -> None:
    """Show a run in the browser: one that goes on, or has ended.

    The page shows accuracy and loss as they come, bytes against float32, each
    client, time by stage, events and what is left to do. It only reads the
    run's files. Beyond loopback it needs TLS and tokens. Ctrl-C ends it.

    \b
    Examples:
      cutlayer dashboard runs/ms
      cutlayer dashboard runs/ms --listen 9000
      # On a server that others reach; `cutlayer certs` makes the files
      cutlayer dashboard runs/ms --listen 0.0.0.0:8080 \\
          --cert server.pem --key server.key --tokens viewers.txt
    """
    from cutlayer.dashboard.http_server import Place, run_dashboard

    if not attached and not any((run / name).is_file() for name in ("config.toml", "status.json")):
        raise FileError(f"{run}: not the directory of a run: it has neither config.toml nor status.json")
    place = Place.parse(listen, cert, key, tokens)
    if attached:
        with suppress(OSError):
            os.nice(_NICE)
        run_dashboard(run, place, _tell_owner, sys.stdin.buffer)
        return
    run_dashboard(run, place, lambda url: show.say(f"dashboard: {url} (Ctrl-C ends it)"))


def _tell_owner(url: str) -> None:
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()
