"""`cutlayer certs`: a private CA, certificates and tokens for server and clients."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from cutlayer.commands import show
from cutlayer.imports import need

Dir = Annotated[Path, typer.Option("--dir", help="where the files lie")]
Force = Annotated[bool, typer.Option("--force", help="replace files that are there")]
Days = Annotated[int, typer.Option(help="how long it is valid", min=1, max=36500)]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        help="Certificates and tokens, so that server and clients know each other.",
        epilog="Try: cutlayer certs ca; cutlayer certs server localhost 127.0.0.1; cutlayer certs token a b",
        no_args_is_help=True,
    )
    for command in (ca, server, client, token, show_):
        group.command(command.__name__.rstrip("_"))(command)
    app.add_typer(group, name="certs")


def ca(directory: Dir = Path("certs"), days: Days = 3650, force: Force = False) -> None:
    """Make a private certificate authority: ca.pem for everybody, ca.key for nobody.

    \b
    Example:
      cutlayer certs ca --dir certs
    """
    _need()
    from cutlayer.wire.security import certs

    _made(*certs.make_ca(directory, days=days, force=force))


def server(
    hosts: Annotated[list[str], typer.Argument(help="names and addresses by which clients call the server")],
    directory: Dir = Path("certs"),
    days: Days = 825,
    force: Force = False,
) -> None:
    """Make the server's certificate: server.pem and server.key.

    \b
    Examples:
      cutlayer certs server train.example.org 192.0.2.7
      cutlayer certs server localhost 127.0.0.1 --days 30
    """
    _need()
    from cutlayer.wire.security import certs

    _made(*certs.make_server(directory, hosts, days=days, force=force))


def client(
    names: Annotated[list[str], typer.Argument(help="the names of clients")],
    directory: Dir = Path("certs"),
    days: Days = 825,
    force: Force = False,
) -> None:
    """Make certificates for clients (mutual TLS): NAME.pem and NAME.key each.

    The name in the certificate is the client's identity; the server believes no other.

    \b
    Example:
      cutlayer certs client camera-0 camera-1
    """
    _need()
    from cutlayer.wire.security import certs

    for name in names:
        certs.check_client_name(name)
    for name in names:
        _made(*certs.make_client(directory, name, days=days, force=force))


def token(
    names: Annotated[list[str], typer.Argument(help="the names of clients")],
    directory: Dir = Path("certs"),
    force: Force = False,
) -> None:
    """Make tokens for clients: a secret NAME.token each, and tokens.txt with hashes for the server.

    Names are added to tokens.txt if it is there. Delete a line of it to shut a client out.

    \b
    Example:
      cutlayer certs token camera-0 camera-1
    """
    _need()
    from cutlayer.wire.security import tokens

    server_file, files = tokens.make(directory, names, force=force)
    _made(server_file, *files)


def show_(
    file: Annotated[Path, typer.Argument(help="a certificate (.pem)")], as_json: AsJson = False
) -> None:
    """Tell what a certificate says: whose it is, for which names, and until when.

    \b
    Example:
      cutlayer certs show certs/server.pem
    """
    _need()
    from cutlayer.wire.security import pem

    about = pem.describe(file)
    if as_json:
        dates = {"not_before": about.not_before.isoformat(), "not_after": about.not_after.isoformat()}
        show.print_json({**asdict(about), **dates, "expired": about.days_left < 0})
        return
    left = f"{about.days_left:.0f} days left" if about.days_left >= 0 else "EXPIRED"
    rows = {
        "subject": about.subject,
        "for": about.purpose,
        "names": ", ".join(about.names) or "none",
        "issuer": about.issuer,
        "valid": f"{about.not_before:%Y-%m-%d} to {about.not_after:%Y-%m-%d %H:%M} UTC ({left})",
        "sha256": about.fingerprint,
    }
    for name, value in rows.items():
        typer.echo(f"{name:10}{value}")


def _need() -> None:
    need("cryptography", "making and reading certificates", "network")


def _made(*paths: Path) -> None:
    for path in paths:
        secret = "secret: keep it on the machine that uses it" if path.suffix in (".key", ".token") else ""
        typer.echo(f"{path!s:40} {secret}".rstrip())
