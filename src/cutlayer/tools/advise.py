"""Advise on cut and codec: the shortest training step for a link and client speed, within an error budget.

The step is that of `parallel` mode, for one client, as the virtual clock counts it (see `Timeline`):

    down: BeginStep and the mean of what clients shared     latency + bytes
    client: forward                                    madds / speed, backward counts twice, with it
    up: smashed data and labels                        latency + bytes
    server: forward and backward                       3 madds / speed
    down: the gradient of the smashed data             latency + bytes
    up: what the client shares, and its Report         latency + bytes
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cutlayer.codecs import Codec, decode
from cutlayer.errors import ConfigError, CutlayerError
from cutlayer.rates.adaptive import PASSES
from cutlayer.split import CutPoint, relative_error
from cutlayer.tasks.base import bits_per_label
from cutlayer.tools.bench import best
from cutlayer.wire.link.model import Link
from cutlayer.wire.messages.types import BeginStep, Report, Share
from cutlayer.wire.meter import Direction

BEGIN_STEP = BeginStep(0, 0, 0, 0.1, Share.GRADIENTS).size
REPORT = Report(0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0).size
_UNITS = {"gmadds": 1e9, "mmadds": 1e6}


@dataclass(frozen=True)
class Setting:
    """Link, speeds and settings of the training to come."""

    link: Link
    device: float
    """Multiply-adds a second of the client."""
    server: float
    batch: int = 32
    classes: int = 10
    down: Codec | None = None
    """The codec of gradients; None for float32."""
    sync: Codec | None = None
    sync_every: int = 1
    """Steps between averages of the clients' halves, whose cost is shared out among them; 0: never."""


@dataclass(frozen=True)
class Choice:
    """One cut under one codec: bytes and seconds of a step."""

    cut: str
    codec: str
    error: float
    """Of the smashed data, ||x - y||^2 / ||x||^2."""
    bits: float
    """An element of the smashed data, header included."""
    up_bytes: int
    down_bytes: int
    client_seconds: float
    server_seconds: float
    up_seconds: float
    down_seconds: float
    fits: bool
    """Whether the error is within the budget."""

    @property
    def seconds(self) -> float:
        """The whole step."""
        return self.client_seconds + self.server_seconds + self.up_seconds + self.down_seconds

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self) | {"seconds": self.seconds}


def speed(text: str, here: float | None) -> float:
    """Multiply-adds a second from `5gmadds`, or from `0.1`: so many times what this machine does (`here`).

    >>> speed("5gmadds", None)
    5000000000.0
    """
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)", text.strip().lower())
    number = float(match[1]) if match else 0.0
    if match is None or number <= 0 or (match[2] and match[2] not in _UNITS):
        raise ConfigError(
            f"a speed of {text!r} is not understood; write 0.1 for a tenth of this machine, or 5gmadds for "
            "5e9 multiply-adds a second (also mmadds)"
        )
    if match[2]:
        return number * _UNITS[match[2]]
    if here is None:
        raise ConfigError(f"a speed of {text!r} is relative, and this machine's is not known")
    return number * here


def relative(text: str) -> bool:
    """Whether a speed is given in multiples of this machine's."""
    return not text.strip()[-1:].isalpha()


@torch.no_grad()
def measure_speed(model: nn.Module, inputs: Tensor, madds: int) -> float:
    """Multiply-adds a second of this machine, in forward passes of this model."""
    model.eval()
    return madds * len(inputs) / best(lambda: model(inputs), least=2, seconds=0.5)


@torch.no_grad()
def feature_maps(model: nn.Module, inputs: Tensor, names: Iterable[str]) -> dict[str, Tensor]:
    """The feature maps at each cut for these inputs."""
    found: dict[str, Tensor] = {}
    modules = dict(model.named_modules())

    def keep(name: str) -> Any:
        # A copy: an activation that follows may work in place.
        return lambda _, __, output: found.__setitem__(name, output.detach().clone())

    hooks = [modules[name].register_forward_hook(keep(name)) for name in names]
    try:
        model.eval()(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def candidates(points: Sequence[CutPoint]) -> list[CutPoint]:
    """The cuts to choose from. Without weights on its side a client would send its data; without any on the
    server's side there is nothing to train there. Cuts of several tensors are not measured."""
    return [p for p in points if p.client_parameters and p.server_parameters and not p.others]


def advise(
    points: Sequence[CutPoint],
    features: Mapping[str, Tensor],
    codecs: Sequence[Codec],
    setting: Setting,
    budget: float,
) -> list[Choice]:
    """All cuts under all codecs, those within the budget first, the shortest step first."""
    choices = []
    for point in points:
        for codec in codecs:
            x = features[point.name]
            try:
                frame = codec.encode(x, seed=0)
            except CutlayerError as found:
                raise ConfigError(f"{codec} cannot carry what crosses {point.name}: {found}") from found
            error = relative_error(x, decode(frame))
            smashed = len(frame) * setting.batch / len(x)
            choices.append(_choice(point, codec, error, smashed, setting, budget))
    return sorted(choices, key=lambda choice: (not choice.fits, choice.seconds))


def _choice(
    point: CutPoint, codec: Codec, error: float, smashed: float, setting: Setting, budget: float
) -> Choice:
    batch, link = setting.batch, setting.link
    labels = (batch * bits_per_label(setting.classes) + 7) // 8
    gradient = _size(setting.down, (batch, *point.shape))
    shared = _size(setting.sync, (point.client_parameters,)) / setting.sync_every if setting.sync_every else 0
    ups = (round(smashed) + labels, round(shared) + REPORT)
    downs = (round(shared) + BEGIN_STEP, round(gradient))
    return Choice(
        cut=point.name,
        codec=str(codec),
        error=error,
        bits=8 * smashed / (batch * point.elements),
        up_bytes=sum(ups),
        down_bytes=sum(downs),
        client_seconds=PASSES * point.client_madds * batch / setting.device,
        server_seconds=PASSES * point.server_madds * batch / setting.server,
        up_seconds=sum(link.seconds(Direction.UP, n) for n in ups),
        down_seconds=sum(link.seconds(Direction.DOWN, n) for n in downs),
        fits=error <= budget,
    )


def _size(codec: Codec | None, shape: tuple[int, ...]) -> float:
    """Bytes of a tensor that has negative values, without the header."""
    if codec is None:
        return 4.0 * torch.Size(shape).numel()
    return float(codec.payload_bytes(shape, True))
