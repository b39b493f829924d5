"""`cutlayer join`: a client that takes part in a run over the network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer

from cutlayer.commands import show
from cutlayer.commands.network.quiet_grpc import quiet_grpc
from cutlayer.imports import need

Flag = typer.Option
_NETWORK = "Network"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("join")(join)


def join(
    address: Annotated[str, typer.Argument(help="the server", metavar="HOST:PORT")],
    data: Annotated[str, Flag(help="this client's data: a path, or digits, cifar10, ...")],
    root: Annotated[str, Flag(help="where data sets lie that are given by name")] = ".",
    whole: Annotated[
        bool,
        Flag("--whole", help="the data are those of all clients; take the part that the run assigns"),
    ] = False,
    cache: Annotated[Path | None, Flag(help="where decoded data are kept for the next time")] = None,
    number: Annotated[
        int | None,
        Flag("--as", help="which client to be, if the server asks for no credentials", min=0, metavar="N"),
    ] = None,
    ca: Annotated[
        Path | None, Flag(help="who signs the server's certificate", rich_help_panel=_NETWORK)
    ] = None,
    cert: Annotated[Path | None, Flag(help="this client's certificate", rich_help_panel=_NETWORK)] = None,
    key: Annotated[Path | None, Flag(help="its key", rich_help_panel=_NETWORK)] = None,
    token_file: Annotated[
        Path | None,
        Flag(help="the file with this client's token; or set CUTLAYER_TOKEN", rich_help_panel=_NETWORK),
    ] = None,
    insecure: Annotated[
        bool, Flag("--insecure", help="talk in plain text beyond loopback", rich_help_panel=_NETWORK)
    ] = False,
    retry: Annotated[
        float,
        Flag(help="seconds to try to reach a server that does not answer", min=0, rich_help_panel=_NETWORK),
    ] = 300.0,
    link: Annotated[
        str | None, Flag(help="send no faster than this link, as 10mbit,20ms", rich_help_panel=_NETWORK)
    ] = None,
    rate: Annotated[
        str | None,
        Flag(help="this client's own bounds, where the server lets clients choose, as auto:max=2"),
    ] = None,
    allreduce_listen: Annotated[
        str,
        Flag(
            help="where other clients reach this one if the run has train.aggregation = allreduce",
            metavar="HOST[:PORT]",
            rich_help_panel=_NETWORK,
        ),
    ] = "127.0.0.1",
    threads: Annotated[int | None, Flag(help="threads of PyTorch", min=1)] = None,
    quiet: Annotated[bool, Flag("--quiet", help="show errors only")] = False,
    as_json: Annotated[bool, Flag("--json", help="print what was done as JSON")] = False,
) -> None:
    """Take part in a run as a client. The settings come from the server; the data stay here.

    A lost connection is made again, for as long as --retry says. Ctrl-C leaves; the client can come back.

    \b
    Examples:
      cutlayer join 127.0.0.1:50551 --data digits --whole
      cutlayer join train.example.org:50551 --data photos/ --ca ca.pem --token-file me.token
      cutlayer join train.example.org:50551 --data photos/ --ca ca.pem --cert me.pem --key me.key
    """
    quiet_grpc()
    need("pydantic", "training")
    need("grpc", "joining a run", "network")
    from cutlayer.aggregation.gloo import Gloo
    from cutlayer.client.join import join as join_run
    from cutlayer.client.participant import Participant
    from cutlayer.wire.link.model import Link
    from cutlayer.wire.security.credentials import ClientSecurity

    if threads is not None:
        torch.set_num_threads(threads)
    screen = show.console(stderr=True)

    def note(text: str) -> None:
        if not quiet:
            screen.print(text, soft_wrap=True, markup=False)

    try:
        taken = join_run(
            address,
            Participant(data, root, whole=whole, cache=None if cache is None else str(cache), rate=rate),
            ClientSecurity.load(ca, cert, key, token_file, insecure=insecure),
            claims=number,
            retry=retry,
            link=None if link is None else Link.parse(link),
            gloo=Gloo(allreduce_listen, insecure=insecure),
            note=note,
        )
    except KeyboardInterrupt:
        note("left; the same command takes part again")
        raise typer.Exit(130) from None
    if as_json:
        show.print_json(vars(taken))
    else:
        note(f"{taken.reason}: client {taken.client} did {taken.steps} steps with {taken.samples} samples")
