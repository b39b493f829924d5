"""`cutlayer load`: thousands of light clients against a server, to see what it can take."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutlayer.commands import show
from cutlayer.commands.network.credentials import NETWORK, ClientCredentials
from cutlayer.commands.network.monitoring import silence_grpc
from cutlayer.commands.option_groups import with_groups
from cutlayer.commands.options import DataRoot, Flag, Quiet
from cutlayer.errors import ConfigError
from cutlayer.imports import need

if TYPE_CHECKING:
    from cutlayer.tools.load.run import Identity, LoadReport


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("load")(load)


@with_groups
def load(
    address: Annotated[str, typer.Argument(help="the server", metavar="HOST:PORT")],
    *,
    clients: Annotated[int, Flag(help="how many clients", min=1)] = 100,
    data: Annotated[str, Flag(help="data of the form that the run's clients have")] = "digits",
    root: DataRoot = Path(),
    steps: Annotated[int, Flag(help="batches that each client has in an epoch", min=1)] = 20,
    codec: Annotated[str | None, Flag(help="codec of the frames; by default the run's")] = None,
    frame_bytes: Annotated[int | None, Flag(help="make frames of about so many bytes", min=1)] = None,
    processes: Annotated[int, Flag(help="processes for the clients", min=1)] = 2,
    seconds: Annotated[
        float | None, Flag(help="leave after so many seconds; by default when the run is over", min=0)
    ] = None,
    first: Annotated[
        int | None, Flag("--as", help="claim the numbers from this one on", min=0, rich_help_panel=NETWORK)
    ] = None,
    token_folder: Annotated[
        Path | None,
        Flag(help="a folder with one NAME.token for each client", metavar="DIR", rich_help_panel=NETWORK),
    ] = None,
    credentials: ClientCredentials,
    retry: Annotated[
        float,
        Flag(help="seconds to try to reach a server that does not answer", min=0, rich_help_panel=NETWORK),
    ] = 60.0,
    quiet: Quiet = False,
    as_json: Annotated[bool, Flag("--json", help="print the report as JSON")] = False,
) -> None:
    """Put a server under load with light clients.

    The clients speak the real protocol over real connections, but compute
    nothing: all send the frames of one batch, made once. Reports how long
    connecting took, the time from a frame to its gradient, throughput and
    errors. Use a server that was started for it: the model learns nothing.

    \b
    Examples:
      # A server for a thousand clients, of whom fifty take part at a time
      cutlayer serve --clients 1000 --clients-per-step 50 --epochs 1
      cutlayer load 127.0.0.1:50551 --clients 1000
      # Frames of 64 KB, and figures for a program
      cutlayer load 127.0.0.1:50551 --clients 200 --frame-bytes 65536 --json
    """
    silence_grpc()
    need("pydantic", "the load generator")
    need("grpc", "the load generator", "network")
    need("torch", "the load generator")
    from cutlayer.tools.load.prepare import prepare
    from cutlayer.tools.load.run import generate_load, offered
    from cutlayer.training.progress_bar import progress_bar

    if codec is not None and frame_bytes is not None:
        raise ConfigError("--frame-bytes chooses the codec; leave out --codec")
    identities = _identities(clients, credentials, token_folder, first)
    offer = offered(address, *identities[0], retry)
    prepared = prepare(offer, data, str(root), steps=steps, up=codec, frame_bytes=frame_bytes)
    bar = progress_bar(quiet=quiet or as_json)
    total = clients * (1 + steps)
    bar.begin(total)

    def progress(tally: Any) -> None:
        label = f"{tally.connected}/{clients} connected  {tally.steps} batches answered"
        bar.update(min(total, tally.connected + tally.steps), label)

    try:
        report = generate_load(
            address,
            identities,
            prepared,
            processes=processes,
            seconds=seconds,
            retry=retry,
            progress=progress,
        )
    finally:
        bar.close()
    if as_json:
        show.print_json({**dataclasses.asdict(report), "frame_bytes": len(prepared.frame)})
    else:
        _print(report, len(prepared.frame))
    if report.errors or report.connected < clients:
        raise typer.Exit(1)


def _identities(
    clients: int, credentials: ClientCredentials, folder: Path | None, first: int | None
) -> list[Identity]:
    """The credentials of each client, and the number that it claims."""
    shared = credentials.load()
    if folder is None:
        if shared.token is not None and clients > 1:
            raise ConfigError(
                f"one token is one client; for {clients}, give --token-folder with a .token file for each"
            )
        return [(shared, None if first is None else first + i) for i in range(clients)]
    from cutlayer.wire.security.tokens import read_token

    files = sorted(folder.glob("*.token"))
    if len(files) < clients:
        raise ConfigError(f"{folder}: has {len(files)} .token files; {clients} clients need one each")
    return [(dataclasses.replace(shared, token=read_token(path)), None) for path in files[:clients]]


def _print(report: LoadReport, frame_bytes: int) -> None:
    show.say(
        f"{report.connected} of {report.clients} clients connected in {report.connect_seconds:.1f} s, "
        f"{report.members} took part"
    )
    show.say(
        f"{report.client_steps} batches of {frame_bytes} bytes in {report.seconds:.1f} s: "
        f"{report.client_steps_per_second:.0f} a second, {report.megabytes_per_second:.1f} MB/s both ways"
    )
    if report.latency_seconds:
        found = ", ".join(f"{name} {1e3 * value:.1f} ms" for name, value in report.latency_seconds.items())
        show.say(f"from a frame to its gradient: {found}")
    for text, count in report.errors.items():
        show.say(f"{count} times: {text}", stderr=True)
