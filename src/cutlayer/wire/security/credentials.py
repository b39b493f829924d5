"""How server and clients prove to each other who they are: TLS, mutual TLS, tokens.

The server's identity is its certificate. A client's identity is the common name of its certificate, or the
name that its token belongs to; if both are asked for, they must agree. What a client says about itself in
messages counts for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import grpc

from cutlayer.errors import CredentialError
from cutlayer.wire import log
from cutlayer.wire.address import bind_error, check_listen, is_loopback, parse_address
from cutlayer.wire.security.client_names import check_client_name
from cutlayer.wire.security.private_files import read
from cutlayer.wire.security.tokens import ENVIRONMENT, Tokens, read_token

Options = Sequence[tuple[str, Any]]
Metadata = tuple[tuple[str, str], ...]
#: Without it a second server would silently share the port of the first.
SERVER_OPTIONS: Options = (("grpc.so_reuseport", 0),)
_SCHEME = "Bearer "


class Context(Protocol):
    """What is needed of a gRPC servicer context, of the asynchronous kind or the other."""

    def auth_context(self) -> Any:
        """What TLS found out about the peer."""

    def invocation_metadata(self) -> Any:
        """What the peer sent along with the call."""


@dataclass(frozen=True)
class ServerSecurity:
    """A server's certificate, and how it knows its clients. Empty: plain text, anybody."""

    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    client_ca: bytes | None = None
    tokens: Tokens | None = None

    @staticmethod
    def load(
        cert: Path | None = None,
        key: Path | None = None,
        client_ca: Path | None = None,
        tokens: Path | None = None,
    ) -> ServerSecurity:
        """Read the files and check them, so that what is wrong shows here and not at a client."""
        if (cert is None) != (key is None):
            raise CredentialError("a certificate and its key belong together: give both --cert and --key")
        if client_ca is not None and cert is None:
            raise CredentialError("mutual TLS (--client-ca) needs the server's own --cert and --key, too")
        if cert is not None and key is not None:
            from cutlayer.wire.security.pem import check_pair

            about = check_pair(cert, key)
            if about.purpose not in ("server", "any", "server and client", "client and server"):
                raise CredentialError(f"{cert}: is a certificate for a {about.purpose}, not for a server")
        if client_ca is not None:
            from cutlayer.wire.security.pem import check_validity

            check_validity(client_ca)
        return ServerSecurity(
            read(cert, "certificate") if cert else None,
            read(key, "private key") if key else None,
            read(client_ca, "CA of clients") if client_ca else None,
            Tokens.load(tokens) if tokens else None,
        )

    @property
    def tls(self) -> bool:
        """Whether traffic is encrypted."""
        return self.certificate is not None

    @property
    def auth(self) -> bool:
        """Whether clients have to prove who they are."""
        return self.client_ca is not None or self.tokens is not None

    @property
    def names(self) -> tuple[str, ...]:
        """The clients that have tokens, in the order of the server's file."""
        return tuple(self.tokens.hashes) if self.tokens is not None else ()

    def bind(self, server: grpc.aio.Server, address: str, *, insecure: bool = False) -> int:
        """Let the server listen, if that is safe. Make it with `SERVER_OPTIONS`. Returns the port."""
        check_listen(address, tls=self.tls, auth=self.auth, insecure=insecure)
        try:
            if self.certificate is None or self.key is None:
                port = server.add_insecure_port(address)
            else:
                credentials = grpc.ssl_server_credentials(
                    [(self.key, self.certificate)], self.client_ca, self.client_ca is not None
                )
                port = server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise bind_error(address) from error
        if not port:
            raise bind_error(address)
        return int(port)

    def revision(self) -> int:
        """Counts changes of the file of tokens. After each, whoever was let in has to be identified again."""
        if self.tokens is None:
            return 0
        try:
            if self.tokens.refresh():
                log.event("tokens-reloaded", clients=len(self.tokens.hashes))
        except CredentialError as error:
            log.event("tokens-damaged", "warning", error=error)
        return self.tokens.revision

    def identify(self, context: Context) -> str | None:
        """The client's name, from its credential as it is valid now; None where none is asked for."""
        self.revision()
        names = []
        if self.client_ca is not None:
            names.append(_certified(context.auth_context()))
        if self.tokens is not None:
            names.append(self._token_owner(context.invocation_metadata() or ()))
        if len(set(names)) > 1:
            raise CredentialError(
                f"the certificate is {names[0]}'s, but the token is {names[1]}'s; use those of one client"
            )
        return names[0] if names else None

    def _token_owner(self, metadata: Iterable[tuple[str, str | bytes]]) -> str:
        given = [value for name, value in metadata if name == "authorization"]
        if not given:
            raise CredentialError(
                "the server asks for a token, and none was sent; give --token-file, or set "
                f"{ENVIRONMENT} in the environment"
            )
        text = given[0] if isinstance(given[0], str) else given[0].decode("ascii", "replace")
        owner = self.tokens.owner(text.removeprefix(_SCHEME)) if self.tokens is not None else None
        if len(given) > 1 or not text.startswith(_SCHEME) or owner is None:
            raise CredentialError(
                "the server does not know this token; make one there with `cutlayer certs token NAME`, and "
                "bring its .token file here"
            )
        return owner


@dataclass(frozen=True)
class ClientSecurity:
    """How a client knows the server, and proves who it is. Empty: plain text, nobody."""

    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    insecure: bool = False

    @staticmethod
    def load(
        ca: Path | None = None,
        cert: Path | None = None,
        key: Path | None = None,
        token_file: Path | None = None,
        token_env: str = ENVIRONMENT,
        insecure: bool = False,
    ) -> ClientSecurity:
        """Read the files and check them. The token comes from its file, or else from the environment."""
        if (cert is None) != (key is None):
            raise CredentialError("a certificate and its key belong together: give both --cert and --key")
        if cert is not None and ca is None:
            raise CredentialError("a client's certificate is for TLS: give --ca, too, to know the server by")
        # `pem` imports cryptography, which a device without TLS does without: 10 MB of memory.
        if cert is not None and key is not None:
            from cutlayer.wire.security.pem import check_pair

            check_pair(cert, key)
        if ca is not None:
            from cutlayer.wire.security.pem import check_validity

            check_validity(ca)
        return ClientSecurity(
            read(ca, "CA") if ca else None,
            read(cert, "certificate") if cert else None,
            read(key, "private key") if key else None,
            read_token(token_file, token_env),
            insecure,
        )

    @property
    def tls(self) -> bool:
        """Whether traffic is encrypted."""
        return self.ca is not None

    @property
    def metadata(self) -> Metadata:
        """What goes along with each call: the token, if there is one."""
        return () if self.token is None else (("authorization", _SCHEME + self.token),)

    def check_sent_on(self, given: str, named: str) -> None:
        """Raise unless a server at the address that a user has `given` may name another one.

        With TLS a certificate tells who is there. Without, a token would go to whatever host somebody names.
        """
        host, other = parse_address(given)[0], parse_address(named)[0]
        near = other.lower() == host.lower() or (is_loopback(host) and is_loopback(other))
        if not (self.tls or near) and (self.token is not None or not self.insecure):
            raise CredentialError(
                f"{given} sends this client on to {named}, and without TLS nobody can tell who that is: the "
                "token is not sent there. Give --ca with the ca.pem of the servers' certificates"
            )

    def channel(self, address: str, options: Options = ()) -> grpc.aio.Channel:
        """A channel to the server, for asyncio."""
        credentials = self._credentials(address)
        if credentials is None:
            return grpc.aio.insecure_channel(_target(address), options)
        return grpc.aio.secure_channel(_target(address), credentials, options)

    def sync_channel(self, address: str, options: Options = ()) -> grpc.Channel:
        """A channel to the server, for threads."""
        credentials = self._credentials(address)
        if credentials is None:
            return grpc.insecure_channel(_target(address), options)
        return grpc.secure_channel(_target(address), credentials, options)

    def _credentials(self, address: str) -> grpc.ChannelCredentials | None:
        host, _ = parse_address(address)
        if self.ca is not None:
            return grpc.ssl_channel_credentials(self.ca, self.key, self.certificate)
        if not (is_loopback(host) or self.insecure):
            raise CredentialError(
                f"will not talk to {address} in plain text: others could read and change it. Give --ca with "
                "the ca.pem of the server's certificate, or take the risk with --insecure"
            )
        return None


def _target(address: str) -> str:
    """An address as gRPC's target: `unix:80` would be a file to it otherwise."""
    return f"dns:///{address}"


def _certified(found: Any) -> str:
    """The common name in a certificate that TLS has verified."""
    names = found.get("x509_common_name") or []
    if len(names) != 1:
        raise CredentialError(
            "the server asks for a client's certificate with one common name; make one with "
            "`cutlayer certs client NAME`"
        )
    return check_client_name(names[0].decode("utf-8", "replace"))
