"""The codecs of a run: tensors to frames and back, each with the seed of its place in the run.

What they drop of shared vectors is made good by error feedback.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cutlayer.codecs import Codec, codec, decode
from cutlayer.codecs.frame import DEFAULT_LIMIT
from cutlayer.codecs.registry import codec_of
from cutlayer.codecs.tensor_set.frame_set import is_set, join_frames, split_frames
from cutlayer.codecs.tensor_set.integers import encode_integers
from cutlayer.errors import CheckpointError, MessageError
from cutlayer.protocol.tensor_forms import check_values
from cutlayer.seeds import derive
from cutlayer.split.tensors import Tensors
from cutlayer.wire.messages.types import Share, SyncUp

__all__ = ["ErrorFeedback", "RunCodecs", "codec_of"]

_DENSE = codec("dense")
_ACTIVATIONS = ("up", "down-features")
_WITH_VECTOR = (Share.GRADIENTS, Share.WEIGHTS, Share.DIFFERENCES, Share.UPDATE)
_WITH_BUFFERS = (Share.WEIGHTS, Share.DIFFERENCES, Share.BUFFERS, Share.UPDATE)


class ErrorFeedback:
    """What compression dropped of a shared vector, which is added to the next one: a sender's residual.

    With residual `r` it sends `C(x + r)`, and then `r = x + r - C(x + r)`. Gradients allow this and feature
    maps do not: gradients of successive steps add up in the weights, so what is missing from one can be made
    good by the next. Of weights it keeps movements that are smaller than a quantizer's step.

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
    tensors: Mapping[str, Codec] = field(default_factory=dict)
    """Codecs of single tensors, by name, where several cross a cut. Their gradients travel as all others."""
    remembers: bool = False
    """Whether smashed data travel as what has changed since a sample's last visit."""
    commitment: float = 0.0
    """How strongly clients pull smashed data towards what they decode to: see `split.tensors.pulled`."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    """Where tensors are decoded to: that of the models."""

    @property
    def exact(self) -> bool:
        """Whether smashed data arrive as they are."""
        return (
            not self.remembers and self.up == _DENSE and all(own == _DENSE for own in self.tensors.values())
        )

    @property
    def measures(self) -> bool:
        """Whether there is a compression error to record."""
        return self.measure_error and not self.exact

    @property
    def feeds_back(self) -> bool:
        """Whether what `sync` drops is kept for the next time."""
        return self.error_feedback and self.sync != _DENSE

    def encode(self, how: Codec, x: Tensors, what: str, client: int, epoch: int, step: int) -> bytes:
        """What crosses a cut as a frame, or as a set of frames. `what` keeps two of the same place apart."""
        place = (self.seed, client, epoch, step)
        if not isinstance(x, dict):
            return how.encode(x, seed=derive(f"codec/{what}", *place))
        own = self.tensors if what in _ACTIVATIONS else {}
        return join_frames(
            {
                name: own.get(name, how).encode(tensor, seed=derive(f"codec/{what}/{name}", *place))
                if tensor.is_floating_point()
                else encode_integers(tensor)
                for name, tensor in x.items()
            }
        )

    def encode_evaluation(self, how: Codec, x: Tensors) -> bytes:
        """As `encode`, for activations in evaluation: without random choices."""
        if not isinstance(x, dict):
            return how.deterministic().encode(x)
        return join_frames(
            {
                name: self.tensors.get(name, how).deterministic().encode(tensor)
                if tensor.is_floating_point()
                else encode_integers(tensor)
                for name, tensor in x.items()
            }
        )

    def encode_shared(
        self, feedback: ErrorFeedback | None, x: Tensor, what: str, client: int, epoch: int, step: int
    ) -> bytes:
        """What is averaged over clients as a frame, with what error feedback still owes."""

        def encode(y: Tensor) -> bytes:
            return self.encode(self.sync, y, what, client, epoch, step)

        return encode(x) if feedback is None else feedback.encode(x, encode, self.decode)

    @staticmethod
    def plain(x: Tensor) -> bytes:
        """A tensor as it is; nothing at all if it has no elements."""
        return _DENSE.encode(x) if x.numel() else b""

    def elements(self, share: Share) -> tuple[int, int]:
        """How many elements what a client shares has, in its two frames. Needs `vector_sizes`."""
        vector, buffers = self.vector_sizes or (0, 0)
        return vector * (share in _WITH_VECTOR), buffers * (share in _WITH_BUFFERS)

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
            if self.max_value is not None and vector is not None:
                check_values(vector, self.max_value, f"what client {client} shares")
        return found

    def decode(self, frame: bytes, max_elements: int | None = None) -> Tensor:
        """The tensor in a frame, which may claim so many elements; by default, those of the run."""
        most = self.max_elements if max_elements is None else max_elements
        limit = DEFAULT_LIMIT if most is None else most
        found: Tensor = decode(frame, max_elements=limit, device=self.device, like="torch")
        return found

    def decode_cut(self, data: bytes, max_elements: Mapping[str, int] | int | None = None) -> Tensors:
        """What crosses a cut, of so many elements, in all or of each tensor; by default, those of the run."""
        if not is_set(data):
            if isinstance(max_elements, Mapping):
                raise MessageError("one tensor, where several cross the cut")
            return self.decode(data, max_elements)
        frames = split_frames(data)
        if isinstance(max_elements, Mapping):
            if list(frames) != list(max_elements):
                expected = ", ".join(max_elements)
                raise MessageError(f"tensors named {', '.join(frames)[:200]}, where {expected} cross the cut")
            return {name: self.decode(bytes(frame), max_elements[name]) for name, frame in frames.items()}
        left = self.max_elements if max_elements is None else max_elements
        found: dict[str, Tensor] = {}
        for name, frame in frames.items():
            found[name] = self.decode(bytes(frame), left)
            left = None if left is None else left - found[name].numel()
        return found
