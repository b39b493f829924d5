"""`cutlayer certs`: a private CA, certificates and tokens for server and clients."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from cutlayer.commands import show
from cutlayer.commands.help import Program
from cutlayer.commands.options import AsJson, Flag, Overwrite
from cutlayer.imports import need

Dir = Annotated[Path, Flag("--dir", help="the folder of the files")]
Days = Annotated[int, Flag(help="how long the certificate is valid", min=1, max=36500)]
Names = Annotated[list[str], typer.Argument(help="the names of clients", metavar="NAME")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = Program(
        help="Make certificates and tokens for server and clients.",
        epilog="Try: cutlayer certs ca, then: cutlayer certs server localhost",
        no_args_is_help=True,
    )
    for command in (ca, server, client, token, show_):
        group.command(command.__name__.rstrip("_"))(command)
    app.add_typer(group, name="certs")


def ca(directory: Dir = Path("certs"), days: Days = 3650, force: Overwrite = False) -> None:
    """Make a private CA: ca.pem for everybody, ca.key for nobody.

    Whoever has ca.key can make certificates that clients trust: keep it off
    the machines that train.

    \b
    Example:
      cutlayer certs ca --dir certs
    """
    _need()
    from cutlayer.wire.security import certs

    _made(*certs.make_ca(directory, days=days, force=force))


def server(
    hosts: Annotated[
        list[str], typer.Argument(help="names and addresses by which clients call the server", metavar="HOST")
    ],
    directory: Dir = Path("certs"),
    days: Days = 825,
    force: Overwrite = False,
) -> None:
    """Make the server's certificate: server.pem and server.key.

    It is valid for the names and addresses by which clients reach the server.

    \b
    Examples:
      cutlayer certs server train.example.org 192.0.2.7
      cutlayer certs server localhost 127.0.0.1 --days 30
    """
    _need()
    from cutlayer.wire.security import certs

    _made(*certs.make_server(directory, hosts, days=days, force=force))


def client(
    names: Names,
    directory: Dir = Path("certs"),
    days: Days = 825,
    force: Overwrite = False,
) -> None:
    """Make certificates for clients (mutual TLS): NAME.pem and NAME.key.

    The name in the certificate is the client's identity.

    \b
    Example:
      cutlayer certs client camera-0 camera-1
    """
    _need()
    from cutlayer.wire.security import certs
    from cutlayer.wire.security.client_names import check_client_name

    for name in names:
        check_client_name(name)
    for name in names:
        _made(*certs.make_client(directory, name, days=days, force=force))


def token(
    names: Names,
    directory: Dir = Path("certs"),
    force: Overwrite = False,
) -> None:
    """Make tokens for clients.

    Each client gets a secret NAME.token, and the server tokens.txt with the
    hashes. Names are added to a tokens.txt that exists. To shut a client out,
    delete its line there.

    \b
    Example:
      cutlayer certs token camera-0 camera-1
    """
    _need()
    from cutlayer.wire.security import tokens

    server_file, files = tokens.make(directory, names, force=force)
    _made(server_file, *files)


def show_(
    file: Annotated[Path, typer.Argument(help="a certificate (.pem)", metavar="FILE")],
    as_json: AsJson = False,
) -> None:
    """Show whose a certificate is, for which names, and until when.

    Nothing is changed, and no key is read.

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
