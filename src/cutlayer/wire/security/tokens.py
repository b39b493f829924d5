"""Tokens: one secret a client, of which the server keeps only the hash.

A token has 256 random bits, so a plain SHA-256 cannot be reversed by guessing and needs no salt. The
server's file has one line a client, `NAME sha256:HEX`. The order of its lines is that of the run's clients.
A running server follows its file: a token whose line is gone or has changed is worth nothing from then on.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cutlayer.errors import CredentialError, FileError
from cutlayer.files import write_atomically
from cutlayer.wire.security.client_names import check_client_name
from cutlayer.wire.security.private_files import SECRET, read, write_all

PREFIX = "cutlayer-"
#: What a token looks like. Logs blot out everything of this form.
PATTERN = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}")
ENVIRONMENT = "CUTLAYER_TOKEN"
_LINE = re.compile(r"(\S+)\s+sha256:([0-9a-f]{64})")


def digest(token: str) -> str:
    """What the server keeps of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def make(directory: Path, names: Iterable[str], *, force: bool = False) -> tuple[Path, list[Path]]:
    """New tokens for clients: `NAME.token` for each, their hashes added to the server's `tokens.txt`."""
    server = directory / "tokens.txt"
    known = dict(Tokens.load(server).hashes) if server.exists() else {}
    made = {check_client_name(name): PREFIX + secrets.token_urlsafe(32) for name in names}
    taken = sorted(known.keys() & made.keys())
    if taken and not force:
        raise FileError(f"{server}: {taken[0]} has a token already; replace it with --force")
    files = {directory / f"{name}.token": (f"{token}\n".encode(), SECRET) for name, token in made.items()}
    write_all(files, force=force)
    known |= {name: digest(token) for name, token in made.items()}
    lines = "".join(f"{name} sha256:{value}\n" for name, value in known.items())
    write_atomically(server, lines, mode=SECRET, parents=True)
    return server, list(files)


@dataclass
class Tokens:
    """What the server knows: the hash of each client's token, as the file has it that they came from."""

    hashes: Mapping[str, str]
    path: Path | None = None
    revision: int = 0
    """How often the file has been read again."""
    _seen: tuple[int, ...] | None = field(default=None, repr=False)

    @staticmethod
    def load(path: Path) -> Tokens:
        """Read the server's file."""
        # Before it is read: a change while it is read is then seen by `refresh`.
        seen = _signature(path)
        return Tokens(_parse(path), path, 0, seen)

    def refresh(self) -> bool:
        """Read the file again if it has changed; True if so.

        A file that is gone or damaged raises CredentialError, once for each change; the tokens stay as they
        are, because an editor may be about to write it.
        """
        if self.path is None or (seen := _signature(self.path)) == self._seen:
            return False
        self._seen = seen
        self.hashes = _parse(self.path)
        self.revision += 1
        return True

    def owner(self, token: str) -> str | None:
        """Whose token it is. Every hash is compared in full, so the time tells nothing about any of them."""
        presented = digest(token)
        owner = None
        for name, value in self.hashes.items():
            if hmac.compare_digest(presented, value):
                owner = name
        return owner


def _signature(path: Path) -> tuple[int, ...] | None:
    """What is another when a file has been written or replaced; None if it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _parse(path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    text = read(path, "file of token hashes").decode("utf-8", "replace")
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            hint = "; this is a client's secret, not the server's file" if PATTERN.search(line) else ""
            raise CredentialError(f"{path}: line {number} is not 'NAME sha256:HEX'{hint}")
        if match[1] in found:
            raise CredentialError(f"{path}: line {number} names {match[1]} a second time")
        found[check_client_name(match[1])] = match[2]
    if not found:
        raise CredentialError(f"{path}: names no client; add some with: cutlayer certs token NAME...")
    return found


def read_token(file: Path | None, variable: str = ENVIRONMENT) -> str | None:
    """A client's token, from a file or else from the environment. Never from a command line."""
    if file is None:
        token, where = os.environ.get(variable), f"the environment variable {variable}"
        if token is None:
            return None
    else:
        token, where = read(file, "token").decode("utf-8", "replace"), str(file)
    token = token.strip()
    if not PATTERN.fullmatch(token):
        # The content stays out of the message: it may be a secret with a typing error.
        raise CredentialError(
            f"{where}: does not hold one token as `cutlayer certs token` makes it; copy the client's .token "
            "file again"
        )
    return token
