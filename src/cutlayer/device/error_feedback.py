"""Error feedback in NumPy: what compression dropped of a shared vector is added to the next one."""

from __future__ import annotations

from typing import Any

import numpy as np

from cutlayer.codecs import Codec, decode
from cutlayer.errors import CheckpointError


class ErrorFeedback:
    """One sender's residual; the twin of `protocol.run_codecs.ErrorFeedback`."""

    def __init__(self, elements: int) -> None:
        self.residual = np.zeros(elements, np.float32)

    def encode(self, x: Any, codec: Codec, seed: int) -> bytes:
        """The frame of `x` and of what was owed."""
        whole = x + self.residual
        frame = codec.encode(whole, seed=seed)
        residual = whole - decode(frame, like="numpy")
        # An error larger than the vector is to be averaged out, not to be repaid.
        shrinks = np.linalg.norm(residual) <= np.linalg.norm(whole)
        self.residual = residual if shrinks else np.zeros_like(residual)
        return frame

    def restore(self, residual: Any | None) -> None:
        """Owe what a checkpoint says; nothing if it says nothing."""
        if residual is None:
            self.residual = np.zeros_like(self.residual)
        elif residual.shape != self.residual.shape or residual.dtype != np.float32:
            raise CheckpointError(
                f"the error-feedback memory has {residual.size} elements in the checkpoint, and the "
                f"client's model {self.residual.size}"
            )
        else:
            self.residual = np.array(residual)
