"""`cutlayer aggregate`: the aggregator in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cutlayer.commands.network.credentials import NETWORK, Names, ServerCredentials, in_order
from cutlayer.commands.network.monitoring import Log, event_log, messages, silence_grpc
from cutlayer.commands.option_groups import with_groups
from cutlayer.commands.options import Flag, Quiet
from cutlayer.commands.runs.settings import RunSettings
from cutlayer.commands.threads import use_threads
from cutlayer.imports import need


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("aggregate")(aggregate)


@with_groups
def aggregate(
    settings: RunSettings,
    *,
    out: Annotated[Path, Flag(help="the folder for the clients' states")] = Path("aggregator"),
    listen: Annotated[
        str, Flag(help="the address for clients", metavar="HOST:PORT", rich_help_panel=NETWORK)
    ] = "127.0.0.1:50552",
    names: Names = None,
    credentials: ServerCredentials,
    log: Log = None,
    quiet: Quiet = False,
) -> None:
    """Average the clients' weights or gradients apart from the split server.

    The split server then never holds the clients' weights. Give this command
    the settings that `cutlayer serve` gets, and give `serve` this address with
    --aggregator: it passes it on to the clients. With credentials, the file
    of tokens also names `split-server`. Ctrl-C ends it; --out has what it
    needs to go on.

    \b
    Examples:
      cutlayer aggregate my.toml --out averages
      cutlayer serve my.toml --aggregator 127.0.0.1:50552
    """
    silence_grpc()
    need("pydantic", "training")
    need("grpc", "aggregating", "network")
    from cutlayer.training.aggregate import aggregate as aggregate_run
    from cutlayer.wire.grpc.server import Listening

    config = settings.resolve(out)
    use_threads(None)
    tell = messages(quiet)

    def ready(port: int) -> None:
        tell(f"listening on {listen.rpartition(':')[0]}:{port} for {config.train.clients} clients")

    listening = Listening(listen, credentials.load(), credentials.insecure, in_order(names), ready=ready)
    with event_log(log):
        aggregate_run(config, listening, out, note=tell)
