"""A device without PyTorch that takes part in a run: it answers the server's offer, then its messages."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cutlayer.device.batches import AUGMENTATIONS, Batches
from cutlayer.device.client import DeviceClient
from cutlayer.device.data_form import DataForm
from cutlayer.device.samples import read_labelled
from cutlayer.device.training_half import HOW, TrainingFile, TrainingHalf
from cutlayer.errors import ConfigError, RefusedError
from cutlayer.wire.limits import largest_from_server
from cutlayer.wire.link.bandwidth import Gauge
from cutlayer.wire.messages.base import Message
from cutlayer.wire.messages.client_steps import ready


class OnnxParticipant:
    """The twin of `client.participant.Participant`, with an ONNX half and data as arrays."""

    def __init__(self, half: str | Path, source: str, threads: int = 1) -> None:
        self.file = TrainingFile.load(half, threads)
        self._name, self._form = str(half), self.file.form
        self._run = self.file.run
        if self._run.mode != "parallel" or self._run.aggregation != "server":
            raise ConfigError(
                f"{half}: an ONNX half takes part in mode parallel with aggregation = server only"
            )
        if self._form.augment not in AUGMENTATIONS:
            raise ConfigError(
                f"{half}: the augmentation {self._form.augment} needs PyTorch; use one of "
                f"{', '.join(AUGMENTATIONS)} (--set data.augment=...)"
            )
        self.samples, self.test = read_labelled(source, self._form)
        self.gauge = Gauge()
        self.client = 0
        self.settings = ""
        self.epochs = self._run.epochs
        self._client: DeviceClient | None = None

    def prepare(self, offer: Any) -> Any:
        """What to say of the data to a server that offers a run."""
        if self.settings and (self.settings, self.client) != (offer.settings, offer.client):
            raise RefusedError(
                "the server now offers another run, or another place in it; start the client again"
            )
        if offer.settings != self.file.settings:
            raise RefusedError(
                f"{self._name} was exported for another run "
                f"({_difference(self.file.settings, offer.settings)}); "
                f"export it again with the server's settings: {HOW}"
            )
        if offer.aggregator:
            raise RefusedError(
                "the run has an aggregator of its own; a device without PyTorch has no use for it"
            )
        self.client, self.settings = offer.client, offer.settings
        return ready(
            self._form,
            digest=hashlib.sha256(offer.settings.encode()).hexdigest(),
            samples=len(self.samples),
            test_samples=0 if self.test is None else len(self.test),
        )

    @property
    def largest_message(self) -> int:
        """Bytes of the largest message that an honest server sends: a gradient, or a client's state."""
        smashed = self._run.batch_size * math.prod(self.file.shape)
        return largest_from_server(smashed, sum(array.size for array in self.file.state.values()))

    def begin(self, welcome: Any) -> None:
        """The run begins, or goes on from a checkpoint: a fresh half."""
        if not self.settings:
            raise RefusedError("the server welcomes a client that has no settings yet")
        given = dataclasses.asdict(self._form) | {"mean": list(welcome.mean), "std": list(welcome.std)}
        given |= {"shape": list(self._form.shape), "class_names": _listed(self._form.class_names)}
        try:
            form = DataForm.parse(given)
        except ValueError as error:
            raise RefusedError(f"the server's welcome cannot be: {error}") from None
        batches = Batches(
            self.samples,
            form,
            self._run.batch_size,
            seed=self._run.seed,
            client=self.client,
            drop_last=self._run.drop_last,
        )
        self._client = DeviceClient(self.client, TrainingHalf(self.file), batches, self.test)

    def handle(self, message: Message) -> Iterable[Message]:
        """The answers to a message."""
        if self._client is None:
            raise RefusedError("a message before the welcome")
        return self._client.handle_from_network(message)

    def exchange(self, gloo: Any) -> None:
        """Nothing: the server averages."""

    def exchange_codecs(self) -> Any:
        """Not for a device: the server averages."""
        raise RefusedError("a device without PyTorch exchanges nothing with other clients")


def _listed(names: tuple[str, ...] | None) -> list[str] | None:
    return None if names is None else list(names)


def _difference(own: str, other: str) -> str:
    """The first setting in which two runs differ."""
    try:
        a, b = json.loads(own), json.loads(other)
        for section in sorted(a.keys() | b.keys()):
            x, y = a.get(section), b.get(section)
            if x == y:
                continue
            if not isinstance(x, dict) or not isinstance(y, dict):
                return f"{section} is {str(x)[:40]!r}, the server's {str(y)[:40]!r}"
            name = next(n for n in sorted(x.keys() | y.keys()) if x.get(n) != y.get(n))
            return f"{section}.{name} is {str(x.get(name))[:40]!r}, the server's {str(y.get(name))[:40]!r}"
    except (ValueError, AttributeError, StopIteration):
        pass
    return "the settings differ"
