"""What every client does with the server's messages, whatever computes its half: dispatch, and steps.

`client.split_client` computes with PyTorch, `device.client` with onnxruntime and NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from cutlayer.errors import CutlayerError, MessageError
from cutlayer.wire.messages.base import Message
from cutlayer.wire.messages.protobuf import message_class
from cutlayer.wire.messages.types import BeginStep, Report

#: What a client does with each kind of message: it takes the message and gives the answers.
Handlers = Mapping[type[Message], Callable[..., Iterable[Message]]]


def answers(handlers: Handlers, message: Message, client: int) -> Iterable[Message]:
    """The answers of that client to a message from the server."""
    handler = handlers.get(type(message))
    if handler is None:
        raise MessageError(f"client {client} has no use for a {type(message).__name__}")
    return handler(message)


def answers_from_network(handlers: Handlers, message: Message, client: int) -> list[Message]:
    """As `answers`, for a server that is not trusted: whatever it sends is answered, or is its fault."""
    try:
        return list(answers(handlers, message, client))
    except CutlayerError:
        raise
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise MessageError(
            f"client {client} cannot use the server's {type(message).__name__} of step "
            f"{message.number} ({type(error).__name__}: {error})"
        ) from error


@dataclass(slots=True)
class OpenStep:
    """A step that a client has begun, and the seconds of its stages."""

    begin: BeginStep
    samples: int
    loss: float = math.nan
    error: float = math.nan
    data: float = 0.0
    forward: float = 0.0
    encode: float = 0.0
    decode: float = 0.0
    backward: float = 0.0

    def report(self) -> Report:
        """What the client tells of the step at its end."""
        return Report(
            self.begin.number,
            samples=self.samples,
            loss=self.loss,
            error=self.error,
            data=self.data,
            forward=self.forward,
            encode=self.encode,
            decode=self.decode,
            backward=self.backward,
        )


Step = TypeVar("Step", bound=OpenStep)


def step_of(message: Message, opened: Step | None, client: int) -> Step:
    """The step in progress, if the message belongs to it; MessageError if not."""
    if opened is None or opened.begin.number != message.number:
        raise MessageError(
            f"client {client}: a {type(message).__name__} of step {message.number}, which is not "
            "the step in progress"
        )
    return opened


def ready(form: Any, *, digest: str, samples: int, test_samples: int, **more: Any) -> Any:
    """The Ready of a client: what it tells about its data, from a `DataSpec` or a device's `DataForm`."""
    return message_class("Ready")(
        digest=digest,
        samples=samples,
        test_samples=test_samples,
        classes=form.classes,
        class_names=form.class_names or (),
        shape=form.shape,
        pixels=form.pixels,
        name=form.name,
        augment=form.augment,
        mean=form.mean,
        std=form.std,
        size=form.size or 0,
        **more,
    )
