"""What server and client tell each other before a run begins: settings down, a description of the data up."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from cutlayer.config.schema import Config, from_mapping
from cutlayer.data.federated import FederatedData
from cutlayer.data.form import TensorForm
from cutlayer.data.spec import DataSpec
from cutlayer.errors import ConfigError, RefusedError
from cutlayer.plain_json import from_json
from cutlayer.wire.messages.client_steps import ready
from cutlayer.wire.messages.protobuf import message_class

# What takes memory at a client before it has sent anything.
_MOST_CLIENTS, _LARGEST_SIDE = 1 << 20, 1 << 11


def settings_for_clients(config: Config) -> str:
    """The settings that clients need, as JSON that is the same wherever it is made. No paths."""
    settings = config.identity()
    del settings["data"]["source"]
    settings["train"]["aggregation"] = config.train.aggregation
    return json.dumps(settings, sort_keys=True, separators=(",", ":"))


def digest(settings: str) -> str:
    """What both sides compare."""
    return hashlib.sha256(settings.encode()).hexdigest()


def config_from_offer(settings: str, data: dict[str, Any], device: str = "cpu") -> Config:
    """The configuration of a client: the server's settings, where its own data are, and its own device."""
    try:
        found = from_json(settings)
        found["data"] |= data
        found["train"]["device"] = device
    except (ValueError, KeyError, TypeError) as error:
        raise RefusedError(f"the server's settings cannot be read ({error})") from None
    try:
        config = from_mapping(found, "the server's settings")
    except ConfigError as error:
        raise ConfigError(f"{error}\nInstall the same release of cutlayer on both sides") from None
    for value, most, what in (
        (config.train.clients, _MOST_CLIENTS, "clients"),
        (config.data.size or 0, _LARGEST_SIDE, "pixels a side"),
    ):
        if value > most:
            raise RefusedError(f"the server's settings ask for {value:,} {what}; a client takes {most:,}")
    return config


def describe(data: FederatedData, client: int, settings: str) -> Any:
    """What a client tells about its data: its Ready."""
    spec = DataSpec.of(data)
    return ready(
        spec,
        digest=digest(settings),
        samples=len(data.parts[client]),
        test_samples=len(data.test),
        **({} if spec.target is None else _form_fields(spec)),
    )


def data_spec_of(clients: Sequence[Any]) -> DataSpec:
    """The data of a run from what all clients told of theirs; None for those who are not there yet.

    The first one's statistics count for all.
    """
    first = next(ready for ready in clients if ready is not None)
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
        samples=tuple(0 if ready is None else ready.samples for ready in clients),
        inputs=tuple(map(_tensor_form, first.inputs)),
        container=first.container or "tensor",
        target=_tensor_form(first.target) if first.HasField("target") else None,
    )


def _form_fields(spec: DataSpec) -> dict[str, Any]:
    """The fields of a Ready that only data of other forms than images and features need."""
    made = message_class("TensorForm")
    forms = [
        made(name=form.name, dtype=form.dtype, shape=form.shape, values=form.values)
        for form in (*spec.form.inputs, spec.form.target)
    ]
    return {"inputs": forms[:-1], "target": forms[-1], "container": spec.container}


def _tensor_form(message: Any) -> TensorForm:
    return TensorForm(message.dtype, tuple(message.shape), message.values, message.name)
