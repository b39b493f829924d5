"""What clients and server say to each other, with the exact bytes of each message.

A message is a head (a type byte and fixed little-endian fields) and a body (a frame, two frames, packed
labels, or nothing). Tensors are frames that a codec made; here they are only bytes. One training step of
one client:

    server                      client
      BeginStep        ->                       which step, which learning rate, what to share after it
                       <-  Smashed, Labels      (U-shape: no labels; Smashed also comes down, Gradient also
      Gradient         ->                        goes up, in between)
                       <-  SyncUp               if the step asks for gradients or weights
                       <-  Report               the client's step is over
      SyncDown         ->                       the mean of what all shared

Every message carries the number of its step, so that late and repeated ones can be told and dropped. `parse`
makes a message of bytes that another party sent, and takes nothing about them for granted.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from typing_extensions import Buffer

from cutlayer.errors import MessageError
from cutlayer.wire.messages import remote_loop, scores
from cutlayer.wire.messages.base import Message, WithBody, layout_of
from cutlayer.wire.meter import Kind

_WEIGHT = struct.Struct("<Id")


class Share(IntEnum):
    """What a client shares at the end of a step, or when asked."""

    NOTHING = 0
    GRADIENTS = 1
    WEIGHTS = 2
    """Weights, and the batch-norm statistics that belong to them."""
    BUFFERS = 3
    """Batch-norm statistics alone."""
    STATE = 4
    """Everything that the client has learned, optimizer included; answered by State."""
    OWN = 5
    """Only what differs between clients that hold the same weights; answered by State."""
    DIFFERENCES = 6
    """Weights as differences to the last mean, which all clients have, and batch-norm statistics."""
    UPDATE = 7
    """Gradients, and batch-norm statistics: all that a client which is not asked next has learned."""


#: What clients share for others to update their weights with; they do not update their own.
GRADIENTS = (Share.GRADIENTS, Share.UPDATE)


@dataclass(frozen=True, slots=True)
class BeginStep(Message):
    """Begin a step: `step` of `epoch`, the `number`-th of the run."""

    code: ClassVar[int] = 0
    layout: ClassVar[str] = "IIdB"
    epoch: int
    step: int
    lr: float
    share: Share


@dataclass(frozen=True, slots=True)
class Smashed(WithBody):
    """A frame of activations, or a set of frames; up at the first cut, down at the second of a U-shape."""

    code: ClassVar[int] = 1
    kind: ClassVar[Kind] = Kind.SMASHED


@dataclass(frozen=True, slots=True)
class Labels(WithBody):
    """The packed labels of a batch."""

    code: ClassVar[int] = 2
    kind: ClassVar[Kind] = Kind.LABELS
    layout: ClassVar[str] = "I"
    count: int


@dataclass(frozen=True, slots=True)
class Gradient(WithBody):
    """A frame with the gradient of activations, or a set of frames, against their direction."""

    code: ClassVar[int] = 3
    kind: ClassVar[Kind] = Kind.GRADIENTS


@dataclass(frozen=True, slots=True)
class SyncUp(WithBody):
    """What a client shares: a frame of gradients or weights, then one of buffers; either may be absent."""

    code: ClassVar[int] = 4
    kind: ClassVar[Kind] = Kind.SYNC
    layout: ClassVar[str] = "BI"
    share: Share
    first: int
    """How many bytes of the body are the first frame."""

    @property
    def frames(self) -> tuple[bytes, bytes]:
        """The frame of gradients or weights, and the frame of buffers."""
        return self.body[: self.first], self.body[self.first :]


@dataclass(frozen=True, slots=True)
class SyncDown(SyncUp):
    """The mean of what clients shared, to be taken over with learning rate `lr`."""

    code: ClassVar[int] = 5
    layout: ClassVar[str] = "BId?"
    lr: float
    evaluation: bool
    """To be used for evaluation only, not for training."""


@dataclass(frozen=True, slots=True)
class Report(Message):
    """A client has done its step: what it saw and how long its stages took."""

    code: ClassVar[int] = 6
    # Single precision: the loss is a float32 anyway, and no clock is good to seven digits.
    layout: ClassVar[str] = "Ifffffff"
    samples: int
    loss: float
    """U-shape: the loss; the server knows it otherwise."""
    error: float
    """Relative squared compression error of the smashed data; NaN if it was not measured."""
    data: float
    forward: float
    encode: float
    decode: float
    backward: float


@dataclass(frozen=True, slots=True)
class Ask(Message):
    """Share now: answered by SyncUp, or by State if everything is asked for."""

    code: ClassVar[int] = 7
    layout: ClassVar[str] = "B"
    share: Share


@dataclass(frozen=True, slots=True)
class Evaluate(Message):
    """Send the smashed data (and labels) of one batch of the test set: samples `first` to `last`."""

    code: ClassVar[int] = 8
    layout: ClassVar[str] = "II"
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class State(WithBody):
    """Everything that a client has learned after `number` steps, as a safetensors file.

    Up, for a checkpoint or for another client that has to catch up; down, to be taken over.
    """

    code: ClassVar[int] = 10
    kind: ClassVar[Kind] = Kind.SYNC


@dataclass(frozen=True, slots=True)
class Placeholder(Message):
    """Stands for what a client shares or gets another way: by a separate aggregator, or by other clients."""

    code: ClassVar[int] = 11


@dataclass(frozen=True, slots=True)
class Combine(WithBody):
    """Clients average what they share among themselves: who is in the mean, and with which weight.

    Everybody takes part in the exchange, also those who have nothing to add.
    """

    code: ClassVar[int] = 12
    layout: ClassVar[str] = "IId?I"
    epoch: int
    step: int
    lr: float
    evaluation: bool
    """To be used for evaluation only, by one client."""
    evaluator: int

    @staticmethod
    def pack_weights(weights: Mapping[int, float]) -> bytes:
        """The body: clients' numbers and weights, in the order in which they are added."""
        return b"".join(_WEIGHT.pack(client, weight) for client, weight in weights.items())

    @property
    def weights(self) -> dict[int, float]:
        """Each client's weight in the mean, in the order in which they are added."""
        if not self.body or len(self.body) % _WEIGHT.size:
            raise MessageError(f"Combine: {len(self.body)} bytes are no list of clients and weights")
        return dict(_WEIGHT.iter_unpack(self.body))


#: All messages; the place of each is its type byte. Append only.
TYPES: tuple[type[Message], ...] = (
    BeginStep,
    Smashed,
    Labels,
    Gradient,
    SyncUp,
    SyncDown,
    Report,
    Ask,
    Evaluate,
    scores.Scores,
    State,
    Placeholder,
    Combine,
    scores.Sums,
    remote_loop.Forward,
    remote_loop.Outputs,
    remote_loop.Backward,
    remote_loop.InputGradients,
    remote_loop.Rejected,
    remote_loop.Leave,
)


def unpack(data: Buffer) -> Message:
    """The message in one byte string from another party."""
    view = memoryview(data)
    if not view:
        raise MessageError("an empty message")
    end = head_size(view[0])
    return parse(bytes(view[:end]), bytes(view[end:]))


def head_size(first: int) -> int:
    """How many bytes the head has whose type byte is `first`; for transports that carry one byte string."""
    if first >= len(TYPES):
        raise MessageError(f"no message has the type {first}; is the peer newer?")
    return _LAYOUTS[first].struct.size


def parse(head: bytes, body: bytes) -> Message:
    """The message in bytes from another party."""
    if not head or head[0] >= len(TYPES):
        raise MessageError(f"no message begins with {head[:1].hex() or 'nothing'}; is the peer newer?")
    layout = _LAYOUTS[head[0]]
    try:
        _, number, *values = layout.struct.unpack(head)
        if layout.share is not None:
            values[layout.share] = _SHARES[values[layout.share]]
    except struct.error as error:
        raise MessageError(f"a damaged {layout.cls.__name__} message: {error}") from None
    except KeyError as error:
        raise MessageError(f"a damaged {layout.cls.__name__} message: {error} is nothing to share") from None
    if layout.cls in _TWO_FRAMES and values[1] > len(body):
        raise MessageError(f"{layout.cls.__name__}: the first frame would end behind the message")
    return layout.message(number, values, body)


_SHARES = {int(share): share for share in Share}
# Tables, since a server reads four messages of each client at each step.
_LAYOUTS = tuple(map(layout_of, TYPES))
_TWO_FRAMES = frozenset(cls for cls in TYPES if issubclass(cls, SyncUp))
