"""The interface of rate control, and its simplest form: the same codec at every step."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from cutlayer.codecs import Codec


class Rate:
    """A fixed rate. Subclasses choose by what a client tells them: place in the run, bytes, seconds."""

    def __init__(self, given: Codec) -> None:
        self.codec = given
        """The codec that was chosen last."""

    def choose(self, elements: int, epochs: float) -> Codec:
        """The codec for a tensor of so many elements, so many epochs into the run."""
        return self.codec

    def sent(self, nbytes: int, elements: int) -> None:
        """Told after encoding: how large the frame became."""

    def worked(self, samples: int, seconds: float) -> None:
        """Told after a step: how long the client's own work took."""

    def state(self) -> dict[str, Tensor]:
        """What the next choice depends on beside the place in the run, for a checkpoint."""
        return {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint's state, or from the beginning if that is empty."""
