"""The batches that clients work on: each with what its client was sent, so that it can be sent again."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cutlayer.errors import CheckpointError
from cutlayer.protocol.plan import Step
from cutlayer.wire.messages.types import BeginStep, Gradient, Share, SyncDown

_WEIGHTS, _GRADIENT = "async.weights.", "async.gradient."


@dataclass
class InFlight:
    """A batch that a client was given and has not ended."""

    batch: Step
    """Its place: the update before which it began, and the client's own epoch and step."""
    weights: SyncDown
    """The clients' half that it began with. Clients that began before the same update share the message."""
    loss: float = math.nan
    """Known once the server has used its smashed data."""
    gradient: Gradient | None = None
    """What the server has answered; None before."""
    ending: bool = False
    """Whether the client's last answer is awaited. After it was sent its messages again, not at once."""

    @property
    def begin(self) -> BeginStep:
        """What the client was told."""
        place = self.batch
        return BeginStep(place.number, place.epoch, place.step, place.lr, place.share)


def to_checkpoint(flying: Mapping[int, InFlight]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The messages as tensors of bytes, by name, and the rest as plain JSON."""
    tensors: dict[str, Tensor] = {}
    about: dict[str, Any] = {}
    for client, one in flying.items():
        tensors[f"{_WEIGHTS}{one.weights.number}"] = _tensor(one.weights.body)
        about[str(client)] = {
            "number": one.batch.number,
            "epoch": one.batch.epoch,
            "step": one.batch.step,
            "lr": one.batch.lr,
            "samples": one.batch.samples[0],
            "first": one.weights.first,
        }
        if one.gradient is not None:
            tensors[f"{_GRADIENT}{client}"] = _tensor(one.gradient.body)
            about[str(client)]["loss"] = one.loss
    return tensors, about


def from_checkpoint(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> dict[int, InFlight]:
    """What `to_checkpoint` gave."""
    weights: dict[int, SyncDown] = {}
    found = {}
    try:
        for name, place in about.items():
            client, number, lr = int(name), int(place["number"]), float(place["lr"])
            if number not in weights:
                body = _bytes(tensors[f"{_WEIGHTS}{number}"])
                weights[number] = SyncDown(number, body, Share.WEIGHTS, int(place["first"]), lr, False)
            batch = Step(
                number,
                int(place["epoch"]),
                int(place["step"]),
                lr,
                (client,),
                (int(place["samples"]),),
                Share.UPDATE,
                False,
            )
            one = found[client] = InFlight(batch, weights[number])
            if "loss" in place:
                one.loss = float(place["loss"])
                one.gradient = Gradient(number, _bytes(tensors[f"{_GRADIENT}{client}"]))
    except (LookupError, TypeError, ValueError) as error:
        raise CheckpointError(f"the batches in flight cannot be restored ({error!r})") from error
    return found


def _tensor(data: bytes) -> Tensor:
    # A tensor must have its memory to itself.
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def _bytes(tensor: Tensor) -> bytes:
    if tensor.dtype != torch.uint8:
        raise ValueError(f"a message of {tensor.dtype}")
    return tensor.cpu().numpy().tobytes()
