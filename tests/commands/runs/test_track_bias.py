import json

import pytest

from cutlayer.errors import ConfigError


def test_bias_is_in_the_records_and_in_tensorboard(run, small, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = tmp_path / "run"
    words = ["--codec", "sp:ratio=0.9", "--epochs", 1, "--track-bias", "every=2", "--out", out, "--json"]
    result = run("train", *small, *words)
    assert result.exit_code == 0, result.exception
    records = [json.loads(line) for line in result.stdout.splitlines()]
    tracked = {r["global_step"]: r["bias"] for r in records if "bias" in r}
    assert tracked
    assert all(step % 2 == 1 for step in tracked)
    events = EventAccumulator(str(out / "tensorboard"))
    events.Reload()
    curve = {e.step: e.value for e in events.Scalars("step/bias/client/cosine")}
    assert curve == pytest.approx({step: bias["client"]["cosine"] for step, bias in tracked.items()})


@pytest.mark.parametrize("text", ["5", "every", "every=", "every=-1", "each=5", "every=2.5"])
def test_a_wrong_form_is_explained(run, text):
    refused = run("train", "--track-bias", text)
    assert isinstance(refused.exception, ConfigError)
    assert "every=10" in str(refused.exception)
