"""Who may look: everybody on loopback; beyond it whoever has a token, over TLS."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from cutlayer.errors import CredentialError
from cutlayer.wire.address import is_loopback, parse_address

# A page on loopback is for programs of this machine. A name that an attacker lets point here (DNS rebinding)
# would make it readable for a site in the same browser.
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
_SCHEME = "bearer "
#: What the page may load: its own script and style, and data from where it came from. Nothing may frame it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class KnownTokens(Protocol):
    """What is needed of `cutlayer.wire.security.tokens.Tokens`."""

    def owner(self, token: str) -> str | None:
        """Whose token it is; None if nobody's."""

    def refresh(self) -> bool:
        """Read the file again if it has changed."""


class Access:
    """Decides about requests. Empty: everybody who can connect."""

    def __init__(self, address: str = "127.0.0.1:0", tokens: KnownTokens | None = None) -> None:
        host, _ = parse_address(address)
        self._names = {*_LOCAL_NAMES, host.lower()} if is_loopback(host) else None
        self._tokens = tokens

    def right_host(self, headers: Mapping[str, str]) -> bool:
        """Whether the browser was told to come here by a name of this machine."""
        if self._names is None:
            return True
        host = headers.get("host", "").lower()
        name = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
        return name in self._names

    @staticmethod
    def own_page(headers: Mapping[str, str]) -> bool:
        """Whether the page itself asks, or no browser. Another site's page could take all viewers' places."""
        return headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")

    def may_read(self, headers: Mapping[str, str]) -> bool:
        """Whether the request has a token that is valid now, where one is asked for."""
        if self._tokens is None:
            return True
        given = headers.get("authorization", "")
        if not given.lower().startswith(_SCHEME):
            return False
        # A file that is about to be written, or damaged: those that were valid stay so.
        with suppress(CredentialError):
            self._tokens.refresh()
        return self._tokens.owner(given[len(_SCHEME) :].strip()) is not None


def load_tokens(path: Path) -> KnownTokens:
    """The server's file of hashes, as `cutlayer certs token` makes it."""
    from cutlayer.wire.security.tokens import Tokens

    return Tokens.load(path)
