"""`cutlayer aggregate`: the aggregator in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cutlayer.commands import show
from cutlayer.commands.network.quiet_grpc import quiet_grpc
from cutlayer.imports import need

Flag = typer.Option
_NETWORK = "Network"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("aggregate")(aggregate)


def aggregate(
    config: Annotated[
        Path | None, typer.Argument(help="the configuration file of the run", metavar="CONFIG")
    ] = None,
    recipe: Annotated[str | None, Flag(help="the recipe of the run")] = None,
    clients: Annotated[int | None, Flag(help="how many clients take part")] = None,
    overrides: Annotated[
        list[str] | None, Flag("--set", help="any setting, as train.epochs=5", metavar="A.B=C")
    ] = None,
    out: Annotated[Path, Flag(help="where clients' states are kept")] = Path("aggregator"),
    listen: Annotated[
        str, Flag(help="where clients connect", metavar="HOST:PORT", rich_help_panel=_NETWORK)
    ] = "127.0.0.1:50552",
    cert: Annotated[Path | None, Flag(help="the aggregator's certificate", rich_help_panel=_NETWORK)] = None,
    key: Annotated[Path | None, Flag(help="its key", rich_help_panel=_NETWORK)] = None,
    client_ca: Annotated[
        Path | None, Flag(help="mutual TLS: who signs clients' certificates", rich_help_panel=_NETWORK)
    ] = None,
    tokens: Annotated[
        Path | None,
        Flag(help="hashed tokens of the clients, and of `split-server`", rich_help_panel=_NETWORK),
    ] = None,
    names: Annotated[
        str | None, Flag(help="mutual TLS: the clients' names in order", rich_help_panel=_NETWORK)
    ] = None,
    insecure: Annotated[
        bool,
        Flag("--insecure", help="listen anywhere without TLS or credentials", rich_help_panel=_NETWORK),
    ] = False,
    log_file: Annotated[Path | None, Flag("--log", help="write events to this file, as JSON lines")] = None,
    quiet: Annotated[bool, Flag("--quiet", help="show errors only")] = False,
) -> None:
    """Average what clients share, apart from the split server, which then never holds their weights.

    Give it the settings that `cutlayer serve` gets, and give `serve` its address with --aggregator: it
    tells the clients. It serves until Ctrl-C, and keeps what it needs to go on in --out.

    \b
    Examples:
      cutlayer aggregate my.toml --out averages
      cutlayer serve my.toml --aggregator 127.0.0.1:50552
    """
    quiet_grpc()
    need("pydantic", "training")
    need("grpc", "aggregating", "network")
    from cutlayer.config.resolve import resolve_config
    from cutlayer.training.aggregate import aggregate as aggregate_run
    from cutlayer.wire import log
    from cutlayer.wire.grpc.server import Listening
    from cutlayer.wire.security.credentials import ServerSecurity

    flags: dict[str, Any] = {"train.clients": clients, "output.dir": str(out)}
    given = {name: value for name, value in flags.items() if value is not None}
    settled = resolve_config(config, recipe, given, overrides or [], False)
    screen = show.console(stderr=True)

    def note(text: str) -> None:
        if not quiet:
            screen.print(text, soft_wrap=True, markup=False)

    def ready(port: int) -> None:
        note(f"listening on {listen.rpartition(':')[0]}:{port} for {settled.train.clients} clients")

    if log_file is not None:
        log.open_log(log_file)
    listening = Listening(
        listen,
        ServerSecurity.load(cert, key, client_ca, tokens),
        insecure,
        tuple(name.strip() for name in names.split(",")) if names else (),
        ready=ready,
    )
    aggregate_run(settled, listening, out, note=note)
