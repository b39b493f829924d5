"""The codecs of a run: tensors to frames and back, each with the seed of its place in the run."""

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from cutlayer.codecs import Codec, codec, decode
from cutlayer.codecs.registry import codec_of
from cutlayer.data.seeds import derive
from cutlayer.errors import MessageError
from cutlayer.protocol.error_feedback import ErrorFeedback
from cutlayer.protocol.values import check_values
from cutlayer.wire.messages.types import Share, SyncUp

__all__ = ["RunCodecs", "codec_of"]

_DENSE = codec("dense")


@dataclass(frozen=True)
class RunCodecs:
    """What travels under which codec.

    A random codec draws from (seed, client, epoch, step, what), so the same run sends the same bytes on
    any transport and after any interruption. `up` and `down` are directions: in a U-shape, `up` also
    carries the tail's gradients and `down` the server's activations. `sync` is for what clients share.
    """

    up: Codec
    down: Codec
    sync: Codec
    seed: int
    error_feedback: bool = False
    """Whether what `sync` drops is to be added to what is shared next."""
    measure_error: bool = False
    """Whether to record the compression error of smashed data; costs the client one decode."""
    max_elements: int | None = None
    """The most elements that a frame from another party may claim; None for the library's own limit."""
    vector_sizes: tuple[int, int] | None = None
    """How many elements a client's vectors have: gradients or weights, and buffers. None: not known."""
    max_value: float | None = None
    """The largest magnitude of any value that another party sends; None where all are our own."""

    @cached_property
    def up_evaluation(self) -> Codec:
        """`up` without random choices."""
        return self.up.deterministic()

    @cached_property
    def down_evaluation(self) -> Codec:
        """`down` without random choices."""
        return self.down.deterministic()

    @property
    def exact(self) -> bool:
        """Whether smashed data arrive as they are."""
        return self.up == _DENSE

    @property
    def measures(self) -> bool:
        """Whether there is a compression error to record."""
        return self.measure_error and not self.exact

    @property
    def feeds_back(self) -> bool:
        """Whether what `sync` drops is kept for the next time."""
        return self.error_feedback and self.sync != _DENSE

    def encode(self, how: Codec, x: Tensor, what: str, client: int, epoch: int, step: int) -> bytes:
        """A tensor as a frame. `what` keeps two frames of the same place apart."""
        return how.encode(x, seed=derive(f"codec/{what}", self.seed, client, epoch, step))

    def encode_shared(
        self, feedback: ErrorFeedback | None, x: Tensor, what: str, client: int, epoch: int, step: int
    ) -> bytes:
        """What is averaged over clients as a frame, with what error feedback still owes."""

        def encode(y: Tensor) -> bytes:
            return self.encode(self.sync, y, what, client, epoch, step)

        return encode(x) if feedback is None else feedback.encode(x, encode, decode)

    @staticmethod
    def plain(x: Tensor) -> bytes:
        """A tensor as it is; nothing at all if it has no elements."""
        return _DENSE.encode(x) if x.numel() else b""

    def elements(self, share: Share) -> tuple[int, int]:
        """How many elements what a client shares has, in its two frames. Needs `vector_sizes`."""
        vector, buffers = self.vector_sizes or (0, 0)
        first = share in (Share.GRADIENTS, Share.WEIGHTS)
        return vector * first, buffers * (share in (Share.WEIGHTS, Share.BUFFERS))

    def decode_shared(self, message: SyncUp, client: int) -> list[Tensor | None]:
        """The vectors that a client shares. Raises if they are not those of the run's model."""
        found = [self.decode(frame) if frame else None for frame in message.frames]
        shapes = [[] if vector is None else list(vector.shape) for vector in found]
        expected = [[n] if n else [] for n in self.elements(message.share)]
        if self.vector_sizes is not None and shapes != expected:
            raise MessageError(
                f"client {client} shared tensors of the shapes {shapes}; those of this model have {expected}"
            )
        for vector in found:
            if vector is not None:
                check_values(vector, self.max_value, f"what client {client} shares")
        return found

    def decode(self, frame: bytes, max_elements: int | None = None) -> Tensor:
        """The tensor in a frame, which may claim so many elements; by default, those of the run."""
        most = self.max_elements if max_elements is None else max_elements
        found: Tensor = decode(frame) if most is None else decode(frame, max_elements=most)
        return found
