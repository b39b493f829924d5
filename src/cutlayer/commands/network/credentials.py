"""Options for TLS and credentials: those of a server, and those of a client."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cutlayer.commands.options import Flag

if TYPE_CHECKING:
    from cutlayer.wire.security.credentials import ClientSecurity, ServerSecurity

NETWORK = "Network"

Names = Annotated[
    str | None,
    Flag("--names", help="mutual TLS: the clients' names in order, as a,b,c", rich_help_panel=NETWORK),
]


@dataclass(frozen=True)
class ServerCredentials:
    """Who a server is, and how it knows its clients."""

    cert: Annotated[Path | None, Flag(help="this server's certificate", rich_help_panel=NETWORK)] = None
    key: Annotated[Path | None, Flag(help="the certificate's key", rich_help_panel=NETWORK)] = None
    client_ca: Annotated[
        Path | None, Flag(help="mutual TLS: the CA of the clients' certificates", rich_help_panel=NETWORK)
    ] = None
    tokens: Annotated[
        Path | None, Flag(help="the file of the clients' hashed tokens", rich_help_panel=NETWORK)
    ] = None
    insecure: Annotated[
        bool,
        Flag("--insecure", help="listen anywhere without TLS or credentials", rich_help_panel=NETWORK),
    ] = False

    def load(self) -> ServerSecurity:
        """Read and check the files."""
        from cutlayer.wire.security.credentials import ServerSecurity

        return ServerSecurity.load(self.cert, self.key, self.client_ca, self.tokens)


@dataclass(frozen=True)
class ClientCredentials:
    """How a client knows its server, and who it is."""

    ca: Annotated[Path | None, Flag(help="the CA of the server's certificate", rich_help_panel=NETWORK)] = (
        None
    )
    cert: Annotated[
        Path | None, Flag(help="mutual TLS: this client's certificate", rich_help_panel=NETWORK)
    ] = None
    key: Annotated[Path | None, Flag(help="the certificate's key", rich_help_panel=NETWORK)] = None
    token_file: Annotated[
        Path | None,
        Flag(help="the file of this client's token; or set CUTLAYER_TOKEN", rich_help_panel=NETWORK),
    ] = None
    insecure: Annotated[
        bool, Flag("--insecure", help="connect beyond loopback without TLS", rich_help_panel=NETWORK)
    ] = False

    @property
    def given(self) -> bool:
        """Whether there are any files."""
        return any((self.ca, self.cert, self.key, self.token_file))

    def load(self) -> ClientSecurity:
        """Read and check the files."""
        from cutlayer.wire.security.credentials import ClientSecurity

        return ClientSecurity.load(self.ca, self.cert, self.key, self.token_file, insecure=self.insecure)


def in_order(names: str | None) -> tuple[str, ...]:
    """The names in `a,b,c`."""
    return tuple(name.strip() for name in names.split(",")) if names else ()
