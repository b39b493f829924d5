"""What server and client tell each other before a run begins: settings down, a description of the data up."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from cutlayer.config.schema import Config, from_mapping
from cutlayer.data.federated import FederatedData
from cutlayer.data.spec import DataSpec
from cutlayer.errors import ConfigError, RefusedError
from cutlayer.wire.address import parse_address
from cutlayer.wire.messages.protobuf import message_class


def settings_for_clients(config: Config) -> str:
    """The settings that clients need, as JSON that is the same wherever it is made. No paths."""
    settings = config.identity()
    del settings["data"]["source"]
    settings["train"]["aggregation"] = config.train.aggregation
    return json.dumps(settings, sort_keys=True, separators=(",", ":"))


def digest(settings: str) -> str:
    """What both sides compare."""
    return hashlib.sha256(settings.encode()).hexdigest()


def config_from_offer(settings: str, data: dict[str, Any]) -> Config:
    """The configuration of a client: the server's settings, and where its own data are."""
    try:
        found = json.loads(settings)
        found["data"] |= data
    except (ValueError, KeyError, TypeError) as error:
        raise RefusedError(f"the server's settings cannot be read ({error})") from None
    try:
        return from_mapping(found, "the server's settings")
    except ConfigError as error:
        raise ConfigError(f"{error}\nInstall the same release of cutlayer on both sides") from None


def describe(data: FederatedData, client: int, settings: str) -> Any:
    """What a client tells about its data: its Ready."""
    spec = DataSpec.of(data)
    return message_class("Ready")(
        digest=digest(settings),
        samples=len(data.parts[client]),
        test_samples=len(data.test),
        classes=spec.classes,
        class_names=spec.class_names or (),
        shape=spec.shape,
        pixels=spec.pixels,
        name=spec.name,
        augment=spec.augment,
        mean=spec.mean,
        std=spec.std,
        size=spec.size or 0,
    )


def data_spec_of(clients: Sequence[Any]) -> DataSpec:
    """The data of a run from what all clients told of theirs. The first one's statistics count for all."""
    first = clients[0]
    return DataSpec(
        name=first.name,
        shape=tuple(first.shape),
        pixels=first.pixels,
        classes=first.classes,
        class_names=tuple(first.class_names) or None,
        augment=first.augment,
        mean=tuple(first.mean),
        std=tuple(first.std),
        size=first.size or None,
        samples=tuple(ready.samples for ready in clients),
    )


class Fits:
    """Refuses clients whose data do not fit the run. The first to come sets the form, or an earlier spec."""

    def __init__(self, config: Config, spec: DataSpec | None = None, *, evaluator: bool = True) -> None:
        self._config = config
        self._evaluator = evaluator
        self._data_spec = spec
        self._first: tuple[int, Any] | None = None
        self._samples: dict[int, int] = {} if spec is None else dict(enumerate(spec.samples))

    def __call__(self, client: int, ready: Any) -> None:
        """Check one client."""
        self._form(client, ready)
        size = self._config.train.batch_size if self._config.train.drop_last else 1
        if not size <= ready.samples < 1 << 31:
            raise RefusedError(
                f"client {client} has {ready.samples} samples; it needs at least {size}, one batch"
            )
        before = self._samples.setdefault(client, ready.samples)
        if before != ready.samples:
            raise RefusedError(
                f"client {client} has {ready.samples} samples, but had {before} when the run began; "
                "give it the "
                "same data, or start a new run"
            )
        if self._evaluator and client == 0 and not ready.test_samples:
            raise RefusedError("client 0 evaluates the model, and its data have no test part; add one")
        if self._config.train.aggregation == "allreduce" and client == 0:
            if not ready.meeting:
                raise RefusedError(
                    "client 0 has opened no place for clients to meet; give --allreduce-listen"
                )
            parse_address(ready.meeting)

    def _form(self, client: int, ready: Any) -> None:
        mine = (tuple(ready.shape), ready.classes, ready.pixels, tuple(ready.class_names) or None)
        if self._data_spec is not None:
            spec, who = self._data_spec, "the run's"
            theirs = (spec.shape, spec.classes, spec.pixels, spec.class_names)
        else:
            if self._first is None:
                if not ready.classes or not 0 < len(ready.shape) <= 8 or not all(ready.shape):
                    raise RefusedError(f"client {client} describes no data")
                self._first = (client, mine)
            who, theirs = f"client {self._first[0]}'s", self._first[1]
        names = ("shape", "number of classes", "being images", "class names")
        for name, a, b in zip(names, mine, theirs, strict=True):
            if a != b:
                raise RefusedError(
                    f"client {client}'s data do not fit: their {name} is {_short(a)}, {who} {_short(b)}"
                )


def _short(value: Any) -> str:
    text = str(list(value) if isinstance(value, tuple) else value)
    return text if len(text) < 80 else text[:77] + "..."
