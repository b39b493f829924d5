"""What a server for loops of their own tells a client before its first request."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from cutlayer.errors import RefusedError
from cutlayer.plain_json import from_json

_KIND = "remote-loop"
#: A client keeps so many batches, too: a server must not make it keep more.
MOST_OPEN = 1024


@dataclass(frozen=True)
class RemoteOffer:
    """What the server takes."""

    loss: bool
    """Whether it computes the loss when targets come along."""
    shape: tuple[int, ...] | None
    """The shape of one sample of smashed data; None if any is tried."""
    batch: int
    """The most samples of one request."""
    open: int
    """How many batches of a client it keeps between forward and backward; older ones are dropped."""

    def to_json(self) -> str:
        """As the server sends it."""
        return json.dumps({"kind": _KIND, **asdict(self)}, sort_keys=True)

    @staticmethod
    def parse(text: str, address: str) -> RemoteOffer:
        """What a server offers, if it is one of this kind."""
        try:
            found = from_json(text)
            if found.pop("kind", None) != _KIND:
                raise RefusedError(
                    f"{address}: the server there trains a run of its own settings; take part in it with "
                    "`cutlayer join`, or connect to a cutlayer.RemoteServer"
                )
            shape = found["shape"]
            if shape is not None and not all(type(n) is int and n > 0 for n in shape):
                raise ValueError(f"a shape {shape}")
            limits = [found[name] for name in ("batch", "open")]
            right = all(type(n) is int and n > 0 for n in limits) and limits[1] <= MOST_OPEN
            if not right or type(found["loss"]) is not bool:
                raise ValueError(f"limits {limits}")
            return RemoteOffer(found["loss"], None if shape is None else tuple(shape), *limits)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RefusedError(f"{address}: the server's offer cannot be read ({error})") from None


def digest(settings: str) -> str:
    """By which the server knows that the client has read the same."""
    return hashlib.sha256(settings.encode()).hexdigest()
