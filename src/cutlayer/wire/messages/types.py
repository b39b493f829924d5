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

Every message carries the number of its step, so that late and repeated ones can be told and dropped.
"""

import dataclasses
import operator
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, Self

from cutlayer.errors import MessageError
from cutlayer.wire.messages.named import Named, join_named, sizes_by_kind, split_named
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
class Message:
    """Base of all messages. Fields named in `layout` make the head; `body` is what follows it."""

    kind: ClassVar[Kind] = Kind.CONTROL
    layout: ClassVar[str] = ""

    number: int

    def head(self) -> bytes:
        """The type and the fixed fields."""
        layout = layout_of(type(self))
        return layout.struct.pack(layout.code, *layout.values(self))

    @property
    def content(self) -> bytes:
        """The body; empty for messages that are all head."""
        return b""

    @property
    def size(self) -> int:
        """The bytes that are counted: the body, or the head where there is no body."""
        return len(self.content) or layout_of(type(self)).struct.size

    def sizes(self) -> Mapping[Kind, int]:
        """The bytes that are counted, by what they carry."""
        return {self.kind: self.size}

    @classmethod
    def read(cls, values: dict[str, Any], body: bytes) -> Self:
        """The message of these fields and this body."""
        if body:
            raise MessageError(f"{cls.__name__} has no body, but {len(body)} bytes follow")
        return cls(**values)


@dataclass(frozen=True, slots=True)
class _WithBody(Message):
    body: bytes

    @property
    def content(self) -> bytes:
        return self.body

    @classmethod
    def read(cls, values: dict[str, Any], body: bytes) -> Self:
        return cls(**values, body=body)


@dataclass(frozen=True, slots=True)
class BeginStep(Message):
    """Begin a step: `step` of `epoch`, the `number`-th of the run."""

    layout: ClassVar[str] = "IIdB"
    epoch: int
    step: int
    lr: float
    share: Share


@dataclass(frozen=True, slots=True)
class Smashed(_WithBody):
    """A frame of activations, or a set of frames; up at the first cut, down at the second of a U-shape."""

    kind: ClassVar[Kind] = Kind.SMASHED


@dataclass(frozen=True, slots=True)
class Labels(_WithBody):
    """The packed labels of a batch."""

    kind: ClassVar[Kind] = Kind.LABELS
    layout: ClassVar[str] = "I"
    count: int


@dataclass(frozen=True, slots=True)
class Gradient(_WithBody):
    """A frame with the gradient of activations, or a set of frames, against their direction."""

    kind: ClassVar[Kind] = Kind.GRADIENTS


@dataclass(frozen=True, slots=True)
class SyncUp(_WithBody):
    """What a client shares: a frame of gradients or weights, then one of buffers; either may be absent."""

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

    layout: ClassVar[str] = "BId?"
    lr: float
    evaluation: bool
    """To be used for evaluation only, not for training."""


@dataclass(frozen=True, slots=True)
class Report(Message):
    """A client has done its step: what it saw and how long its stages took."""

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

    layout: ClassVar[str] = "B"
    share: Share


@dataclass(frozen=True, slots=True)
class Evaluate(Message):
    """Send the smashed data (and labels) of one batch of the test set: samples `first` to `last`."""

    layout: ClassVar[str] = "II"
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Scores(Message):
    """U-shape: how one batch of the test set did, as only the client can tell."""

    layout: ClassVar[str] = "IdII"
    samples: int
    loss: float
    """Summed over the samples."""
    top1: int
    top5: int


@dataclass(frozen=True, slots=True)
class State(_WithBody):
    """Everything that a client has learned after `number` steps, as a safetensors file.

    Up, for a checkpoint or for another client that has to catch up; down, to be taken over.
    """

    kind: ClassVar[Kind] = Kind.SYNC


@dataclass(frozen=True, slots=True)
class Placeholder(Message):
    """Stands for what a client shares or gets another way: by a separate aggregator, or by other clients."""


@dataclass(frozen=True, slots=True)
class Combine(_WithBody):
    """Clients average what they share among themselves: who is in the mean, and with which weight.

    Everybody takes part in the exchange, also those who have nothing to add.
    """

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


@dataclass(frozen=True, slots=True)
class Sums(_WithBody):
    """U-shape: what one batch of the test set adds to the sums that a task's metrics are made of.

    Classification has Scores. The body is float64 numbers, little-endian, as many as the task has sums.
    """

    layout: ClassVar[str] = "I"
    samples: int

    @staticmethod
    def pack_values(values: Sequence[float]) -> bytes:
        """The body."""
        return struct.pack(f"<{len(values)}d", *values)

    @property
    def values(self) -> tuple[float, ...]:
        """The sums."""
        if len(self.body) % 8:
            raise MessageError(f"Sums: {len(self.body)} bytes are no list of numbers")
        return struct.unpack(f"<{len(self.body) // 8}d", self.body)


@dataclass(frozen=True, slots=True)
class _WithTensors(_WithBody):
    """A message whose body is a list of named tensors. They count by their own kinds."""

    @staticmethod
    def pack_tensors(tensors: Iterable[Named]) -> bytes:
        """The body."""
        return join_named(tensors)

    @property
    def tensors(self) -> list[Named]:
        """What is in the body. Raises MessageError if it is damaged."""
        return split_named(self.body)

    def sizes(self) -> Mapping[Kind, int]:
        return sizes_by_kind(self.body) if self.body else {Kind.CONTROL: self.size}


@dataclass(frozen=True, slots=True)
class Forward(_WithTensors):
    """A loop of the client's own: run these tensors through the server's part. Answered by Outputs."""

    layout: ClassVar[str] = "Q??"
    session: int
    """Drawn by the client's process: its requests are numbered from 0 again."""
    training: bool
    gradient: bool
    """Whether a Backward may follow."""


@dataclass(frozen=True, slots=True)
class Outputs(_WithTensors):
    """The part's outputs; or the loss, with the gradient of the smashed data."""

    layout: ClassVar[str] = "d"
    loss: float
    """NaN where no targets came."""


@dataclass(frozen=True, slots=True)
class Backward(_WithTensors):
    """Backpropagate the Forward of that number: from these gradients, or `scale` times that of the loss.

    Answered by InputGradients.
    """

    layout: ClassVar[str] = "Qd"
    session: int
    scale: float


@dataclass(frozen=True, slots=True)
class InputGradients(_WithTensors):
    """A Backward has reached the server's weights. Has the gradients of the inputs, unless Outputs had."""


@dataclass(frozen=True, slots=True)
class Rejected(_WithBody):
    """A request failed, and why; the next one may do better."""


@dataclass(frozen=True, slots=True)
class Leave(Message):
    """The client's loop is over: it will not come back."""


#: The type byte of a message is its place here. Append only.
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
    Scores,
    State,
    Placeholder,
    Combine,
    Sums,
    Forward,
    Outputs,
    Backward,
    InputGradients,
    Rejected,
    Leave,
)


def pack(message: Message) -> tuple[bytes, bytes]:
    """The message as head and body, which are sent as one byte string."""
    return message.head(), message.content


def head_format(cls: type[Message]) -> str:
    """The head of such messages, as `struct` calls it."""
    return "<BQ" + cls.layout


class Layout:
    """How the head of one type of message is packed; made once for each, since a server packs many."""

    def __init__(self, cls: type[Message]) -> None:
        self.code = TYPES.index(cls)
        self.struct = struct.Struct(head_format(cls))
        self.names = tuple(f.name for f in dataclasses.fields(cls) if f.name != "body")
        """The fields that stand in the head, in order."""
        # Of a single name, it would give the value and not a tuple.
        self._get = operator.attrgetter(*self.names)

    def values(self, message: Message) -> tuple[Any, ...]:
        """What stands in the head, in order."""
        found: Any = self._get(message)
        return found if len(self.names) > 1 else (found,)


_LAYOUTS: dict[type[Message], Layout] = {}


def layout_of(cls: type[Message]) -> Layout:
    """The layout of such messages."""
    found = _LAYOUTS.get(cls)
    if found is None:
        found = _LAYOUTS[cls] = Layout(cls)
    return found


def field_names(cls: type[Message]) -> tuple[str, ...]:
    """The fields of such messages that stand in the head, in order."""
    return layout_of(cls).names
