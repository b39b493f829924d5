"""Messages of a loop of the client's own, which asks a server for the passes through its part."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from cutlayer.wire.messages.base import Message, WithBody
from cutlayer.wire.messages.named import Named, join_named, sizes_by_kind, split_named
from cutlayer.wire.meter import Kind


@dataclass(frozen=True, slots=True)
class _WithTensors(WithBody):
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

    code: ClassVar[int] = 14
    layout: ClassVar[str] = "Q??"
    session: int
    """Drawn by the client's process: its requests are numbered from 0 again."""
    training: bool
    gradient: bool
    """Whether a Backward may follow."""


@dataclass(frozen=True, slots=True)
class Outputs(_WithTensors):
    """The part's outputs; or the loss, with the gradient of the smashed data."""

    code: ClassVar[int] = 15
    layout: ClassVar[str] = "d"
    loss: float
    """NaN where no targets came."""


@dataclass(frozen=True, slots=True)
class Backward(_WithTensors):
    """Backpropagate the Forward of that number: from these gradients, or `scale` times that of the loss.

    Answered by InputGradients.
    """

    code: ClassVar[int] = 16
    layout: ClassVar[str] = "Qd"
    session: int
    scale: float


@dataclass(frozen=True, slots=True)
class InputGradients(_WithTensors):
    """A Backward has reached the server's weights. Has the gradients of the inputs, unless Outputs had."""

    code: ClassVar[int] = 17


@dataclass(frozen=True, slots=True)
class Rejected(WithBody):
    """A request failed, and why; the next one may do better."""

    code: ClassVar[int] = 18


@dataclass(frozen=True, slots=True)
class Leave(Message):
    """The client's loop is over: it will not come back."""

    code: ClassVar[int] = 19
