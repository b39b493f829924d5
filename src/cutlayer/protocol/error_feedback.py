"""Error feedback: what compression dropped of a shared vector is added to the next one.

Gradients allow this and feature maps do not: gradients of successive steps add up in the weights, so what
is missing from one can be made good by the next. Of weights it keeps movements that are smaller than a
quantizer's step.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from cutlayer.errors import CheckpointError


class Memory:
    """What one sender still owes: sends `C(x + rest)`, and keeps `rest = x + rest - C(x + rest)`.

    >>> memory = Memory(2)
    >>> codec = cutlayer.codec("sp:ratio=0.5")  # keeps one of two
    >>> _ = memory.encode(torch.tensor([3.0, 1.0]), codec.encode, cutlayer.decode)
    >>> memory.rest
    tensor([0., 1.])
    """

    def __init__(self, elements: int) -> None:
        self.rest = torch.zeros(elements)

    def encode(
        self, x: Tensor, encode: Callable[[Tensor], bytes], decode: Callable[[bytes], Tensor]
    ) -> bytes:
        """The frame of `x` and of what was owed."""
        whole = x + self.rest
        frame = encode(whole)
        rest = whole - decode(frame)
        # A codec whose error is larger than the vector (rk enlarges what it keeps, to be unbiased) would let
        # the memory grow without bound: its errors are to be averaged out, not to be repaid.
        shrinks = torch.linalg.vector_norm(rest) <= torch.linalg.vector_norm(whole)
        self.rest = rest if shrinks else torch.zeros_like(rest)
        return frame

    def restore(self, rest: Tensor | None) -> None:
        """Owe what a checkpoint says; nothing if it says nothing."""
        if rest is None:
            self.rest = torch.zeros_like(self.rest)
        elif rest.shape != self.rest.shape:
            raise CheckpointError(
                f"the error-feedback memory has {rest.numel()} elements in the checkpoint, and the clients' "
                f"model {self.rest.numel()}"
            )
        else:
            self.rest = rest.clone()
