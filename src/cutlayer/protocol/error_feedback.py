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


class ErrorFeedback:
    """One sender's residual `r`: it sends `C(x + r)`, and then `r = x + r - C(x + r)`.

    >>> feedback = ErrorFeedback(2)
    >>> codec = cutlayer.codec("sp:ratio=0.5")  # keeps one of two
    >>> _ = feedback.encode(torch.tensor([3.0, 1.0]), codec.encode, cutlayer.decode)
    >>> feedback.residual
    tensor([0., 1.])
    """

    def __init__(self, elements: int) -> None:
        self.residual = torch.zeros(elements)

    def encode(
        self, x: Tensor, encode: Callable[[Tensor], bytes], decode: Callable[[bytes], Tensor]
    ) -> bytes:
        """The frame of `x` and of what was owed."""
        whole = x + self.residual.to(x.device)
        frame = encode(whole)
        residual = whole - decode(frame)
        # A codec whose error is larger than the vector (rk enlarges what it keeps, to be unbiased) would let
        # the memory grow without bound: its errors are to be averaged out, not to be repaid.
        shrinks = torch.linalg.vector_norm(residual) <= torch.linalg.vector_norm(whole)
        self.residual = residual if shrinks else torch.zeros_like(residual)
        return frame

    def restore(self, residual: Tensor | None) -> None:
        """Owe what a checkpoint says; nothing if it says nothing."""
        if residual is None:
            self.residual = torch.zeros_like(self.residual)
        elif residual.shape != self.residual.shape:
            raise CheckpointError(
                f"the error-feedback memory has {residual.numel()} elements in the checkpoint, and the "
                f"clients' model {self.residual.numel()}"
            )
        else:
            self.residual = residual.clone()
