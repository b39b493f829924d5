"""Tensors to frames and back, each with the seed of its place in the run."""

from torch import Tensor

from cutlayer.codecs import Codec, codec, decode
from cutlayer.config.schema import CodecConfig
from cutlayer.data.seeds import derive
from cutlayer.errors import MessageError
from cutlayer.protocol.error_feedback import Memory
from cutlayer.wire.messages.types import Share, SyncUp

_DENSE = codec("dense")


def resolve(spec: str) -> Codec:
    """The codec of a setting; `none` is dense float32."""
    return _DENSE if spec == "none" else codec(spec)


class Crossings:
    """The codecs of a run.

    A random codec draws from (seed, client, epoch, step, what), so the same run sends the same bytes on
    any transport and after any interruption. `up` and `down` are directions: in a U-shape, `up` also
    carries the tail's gradients and `down` the server's activations.
    """

    def __init__(self, config: CodecConfig, seed: int) -> None:
        self.up, self.down, self.sync = (resolve(s) for s in (config.up, config.down, config.sync))
        self.up_evaluation = self.up.deterministic()
        self.down_evaluation = self.down.deterministic()
        self.exact = self.up == _DENSE
        self.measure = config.measure and not self.exact
        self.feedback = config.feedback and self.sync != _DENSE
        """Whether what `sync` drops is kept for the next time."""
        self.seed = seed
        self.limit: int | None = None
        """The most elements that a frame from another party may claim; None for the library's own limit."""
        self.sizes: tuple[int, int] | None = None
        """How many elements a client's vectors have: gradients or weights, and buffers. None: not known."""

    def encode(self, how: Codec, x: Tensor, what: str, client: int, epoch: int, step: int) -> bytes:
        """A tensor as a frame. `what` keeps two crossings at the same place apart."""
        return how.encode(x, seed=derive(f"codec/{what}", self.seed, client, epoch, step))

    def encode_shared(
        self, memory: Memory | None, x: Tensor, what: str, client: int, epoch: int, step: int
    ) -> bytes:
        """What is averaged over clients as a frame, with what the memory still owes."""

        def encode(y: Tensor) -> bytes:
            return self.encode(self.sync, y, what, client, epoch, step)

        return encode(x) if memory is None else memory.encode(x, encode, decode)

    @staticmethod
    def plain(x: Tensor) -> bytes:
        """A tensor as it is; nothing at all if it has no elements."""
        return _DENSE.encode(x) if x.numel() else b""

    def elements(self, share: Share) -> tuple[int, int]:
        """How many elements what a client shares has, in its two frames. Needs `sizes`."""
        vector, buffers = self.sizes or (0, 0)
        first = share in (Share.GRADIENTS, Share.WEIGHTS)
        return vector * first, buffers * (share in (Share.WEIGHTS, Share.BUFFERS))

    def decode_shared(self, message: SyncUp, client: int) -> list[Tensor | None]:
        """The vectors that a client shares. Raises if they are not those of the run's model."""
        found = [self.decode(frame) if frame else None for frame in message.frames]
        shapes = [[] if vector is None else list(vector.shape) for vector in found]
        expected = [[n] if n else [] for n in self.elements(message.share)]
        if self.sizes is not None and shapes != expected:
            raise MessageError(
                f"client {client} shared tensors of the shapes {shapes}; those of this model have {expected}"
            )
        return found

    def decode(self, frame: bytes) -> Tensor:
        """The tensor in a frame."""
        return decode(frame) if self.limit is None else decode(frame, max_elements=self.limit)
