"""A device reads the settings of a run, and refuses those that it cannot follow."""

import json

import pytest

from cutlayer.config.schema import load
from cutlayer.device.settings import BEYOND, BEYOND_CODEC, RunSettings
from cutlayer.protocol.handshake import settings_for_clients


def test_settings_that_a_device_follows_are_read() -> None:
    found = RunSettings.parse(settings_for_clients(load(None, ["train.batch_size=17", "codec.sync=none"])))
    assert (found.batch_size, found.mode, str(found.sync)) == (17, "parallel", "dense")


@pytest.mark.parametrize(
    ("section", "name"), [*(("train", name) for name in BEYOND), *(("codec", name) for name in BEYOND_CODEC)]
)
def test_settings_beyond_a_device_are_refused(section: str, name: str) -> None:
    settings = json.loads(settings_for_clients(load(None)))
    settings[section][name] = 2
    with pytest.raises(ValueError, match=f"{section}.{name} needs PyTorch on every client"):
        RunSettings.parse(json.dumps(settings))
