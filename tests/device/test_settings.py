"""A device reads the settings of a run, and refuses those that it cannot follow."""

import json

import pytest

from cutlayer.config.schema import load
from cutlayer.device.settings import BEYOND, RunSettings
from cutlayer.protocol.handshake import settings_for_clients


def test_settings_that_a_device_follows_are_read() -> None:
    found = RunSettings.parse(settings_for_clients(load(None, ["train.batch_size=17", "codec.sync=none"])))
    assert (found.batch_size, found.mode, str(found.sync)) == (17, "parallel", "dense")


@pytest.mark.parametrize("name", BEYOND)
def test_settings_beyond_a_device_are_refused(name: str) -> None:
    settings = json.loads(settings_for_clients(load(None)))
    settings["train"][name] = 2
    with pytest.raises(ValueError, match=f"train.{name} needs PyTorch on every client"):
        RunSettings.parse(json.dumps(settings))
