"""What a client's smashed data are sent with, step by step. Here: with the codec as it is given."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from cutlayer.codecs import Codec


class Rate:
    """A fixed rate, and what a client tells those that are not: how far the run is, what a step took."""

    def __init__(self, given: Codec) -> None:
        self.codec = given
        """The codec of the step that was begun last."""

    def choose(self, elements: int, epochs: float) -> Codec:
        """The codec for a tensor that is about to leave, so many epochs into the run."""
        return self.codec

    def sent(self, nbytes: int, elements: int) -> None:
        """What the frame took."""

    def worked(self, samples: int, seconds: float) -> None:
        """What the client's own work of a step took."""

    def state(self) -> dict[str, Tensor]:
        """What the next choice depends on beside its place in the run."""
        return {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` gave; from nothing if there is nothing."""
