"""Names of clients: they go into file names, logs and certificates."""

from __future__ import annotations

import re

from cutlayer.errors import CredentialError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_RESERVED = ("ca", "server", "tokens")


def check_client_name(name: str) -> str:
    """A name that can stand in certificates, file names and logs; others are refused."""
    if not _NAME.fullmatch(name):
        raise CredentialError(
            f"{name!r} cannot name a client; use letters, digits, '.', '_' and '-', at most 64, a letter or "
            "digit first"
        )
    if name.lower() in _RESERVED:
        raise CredentialError(f"{name!r} cannot name a client: a file of that name is something else")
    return name
