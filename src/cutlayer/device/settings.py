"""The settings of a run as far as a device needs them, from the JSON that the server offers; checked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from cutlayer.codecs import Codec
from cutlayer.codecs.registry import codec_of
from cutlayer.device.data_form import flag, number, text, whole_number

#: Settings that a device without PyTorch cannot follow, if they differ from their defaults.
BEYOND = ("accumulate", "clip_gradient", "precision", "share_differences")
BEYOND_CODEC = ("memory", "commitment")
_MOST = 1 << 63


@dataclass(frozen=True)
class RunSettings:
    """What a device does by."""

    seed: int
    mode: str
    aggregation: str
    epochs: int
    batch_size: int
    drop_last: bool
    optimizer: str
    momentum: float
    weight_decay: float
    nesterov: bool
    sync: Codec
    """The codec of what clients share."""
    feedback: bool
    """Whether what `sync` drops is added to what is shared next."""
    measure: bool
    """Whether to record the compression error of smashed data."""

    @staticmethod
    def parse(settings: Any) -> RunSettings:
        """From JSON of somebody else. Raises ValueError, KeyError or TypeError if it cannot be."""
        if not isinstance(settings, str):
            raise TypeError("it has no settings of a run")
        found = json.loads(settings)
        train, codec = found["train"], found["codec"]
        for name in BEYOND:  # settings that have their defaults are left out
            if name in train:
                raise ValueError(f"train.{name} needs PyTorch on every client")
        for name in BEYOND_CODEC:
            if name in codec:
                raise ValueError(f"codec.{name} needs PyTorch on every client")
        return RunSettings(
            seed=whole_number(found["seed"], 0, _MOST),
            mode=text(train["mode"]),
            aggregation=text(train["aggregation"]),
            epochs=whole_number(train["epochs"], 1, _MOST),
            batch_size=whole_number(train["batch_size"], 1, _MOST),
            drop_last=flag(train["drop_last"]),
            optimizer=text(train["optimizer"]),
            momentum=number(train["momentum"], 0, 1),
            weight_decay=number(train["weight_decay"], 0, 1e9),
            nesterov=flag(train["nesterov"]),
            sync=codec_of(text(codec["sync"])),
            feedback=flag(codec["feedback"]),
            measure=flag(codec["measure"]),
        )
