"""Streams whose credential is revoked while they are open: they end within a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from cutlayer.errors import CutlayerError
from cutlayer.wire.grpc.peer import Stream

# How often it is looked whether a credential was revoked.
_LOOK = 1.0
#: The name that a call's credential has; raises if it is not good.
Identify = Callable[[Any], str | None]


class RevokedCredentials:
    """Open streams with the credential that they began with. One task looks at all of them."""

    def __init__(
        self, identify: Identify, revision: Callable[[], int], refused: Callable[[str | None], None]
    ) -> None:
        """`revision` is another number when credentials may have been revoked; `refused` is told the name."""
        self._identify = identify
        self._revision = revision
        self._refused = refused
        self._watched: dict[Stream, tuple[Any, str | None, int]] = {}
        self._watching: asyncio.Task[None] | None = None

    @property
    def revision(self) -> int:
        """What to `add` a stream with. Ask for it before the credential is looked at."""
        return self._revision()

    def add(self, stream: Stream, context: Any, name: str | None, revision: int) -> None:
        """Watch a stream, whose credential was good at that revision."""
        self._watched[stream] = (context, name, revision)
        if self._watching is None:
            self._watching = asyncio.ensure_future(self._watch())

    def remove(self, stream: Stream) -> None:
        """The stream has ended."""
        del self._watched[stream]
        if not self._watched and self._watching is not None:
            self._watching.cancel()
            self._watching = None

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK)
            now = self._revision()
            for stream, (context, name, revision) in list(self._watched.items()):
                if revision == now:
                    continue
                self._watched[stream] = (context, name, now)
                try:
                    valid = self._identify(context) == name
                except CutlayerError:
                    valid = False
                if not valid:
                    self._refused(name)
                    stream.end("REFUSED", "the credential of this client was revoked")
