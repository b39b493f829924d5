"""What a server for loops of their own tells a client before its first request."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from torch import Tensor

from cutlayer.errors import InputError, RefusedError
from cutlayer.plain_json import from_json
from cutlayer.split.tensors import Tensors, tensors_of

_KIND = "remote-loop"
#: A client keeps so many batches, too: a server must not make it keep more.
MOST_OPEN = 1024


@dataclass(frozen=True)
class RemoteOffer:
    """What the server takes."""

    loss: bool
    """Whether it computes the loss when targets come along."""
    shape: tuple[int, ...] | None
    """The shape of one sample of smashed data, which is one tensor then; None if any is tried."""
    batch: int
    """The most samples of one request."""
    open: int
    """How many batches of a client it keeps between forward and backward; older ones are dropped."""

    def to_json(self) -> str:
        """As the server sends it."""
        return json.dumps({"kind": _KIND, **asdict(self)}, sort_keys=True)

    def check(self, x: Tensors, targets: Tensor | None, address: str) -> None:
        """Raise InputError for a batch that the server would refuse."""
        tensors = tensors_of(x) if isinstance(x, dict) else [x]
        if not tensors or not all(isinstance(t, Tensor) and t.dim() for t in tensors):
            raise InputError(f"{address}: smashed data must be tensors with the samples in front")
        if not any(t.is_floating_point() for t in tensors):
            raise InputError(f"{address}: smashed data must be floats, or have floats among them")
        samples = {len(t) for t in tensors}
        if len(samples) > 1:
            raise InputError(f"{address}: smashed data of {sorted(samples)} samples; they must have as many")
        if self.shape is not None and (isinstance(x, dict) or tuple(x.shape[1:]) != self.shape):
            given = f"several tensors ({', '.join(x)})" if isinstance(x, dict) else f"shape {list(x.shape)}"
            raise InputError(
                f"{address}: smashed data of {given}; the server's part takes [samples, "
                f"{', '.join(map(str, self.shape))}]. Are both cut at the same place?"
            )
        (count,) = samples
        if count > self.batch:
            raise InputError(f"{address}: a batch of {count} samples; the server takes {self.batch} at most")
        if targets is None:
            return
        if not self.loss:
            raise InputError(
                f"{address}: the server has no loss. Leave the targets out and compute it from the outputs, "
                "or start the server with loss=..."
            )
        if not isinstance(targets, Tensor) or not targets.dim() or len(targets) != count:
            raise InputError(f"{address}: {count} samples need a tensor of {count} targets")

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
