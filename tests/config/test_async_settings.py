"""Which settings go with mode async: what cannot work is named, with the reason."""

import pytest

from cutlayer.config.schema import load
from cutlayer.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["train.buffer=11"], "11 arrivals of 10 clients"),
        (["train.buffer=0"], "train.buffer: expected greater than or equal to 1"),
        (["train.buffer=-2"], "train.buffer: expected greater than or equal to 1"),
        (["train.buffer=2.5"], "train.buffer: expected"),
        (["train.max_staleness=-1"], "train.max_staleness: expected greater than or equal to 0"),
        (["train.sync=5"], "there is no period"),
        (["train.sync=epoch"], "there is no period"),
        (["train.aggregation=allreduce"], "nobody waits for all"),
        (["train.aggregation=allgather"], "nobody waits for all"),
        (["train.server_batching=fused"], "nothing to fuse"),
        (["train.accumulate=2"], "train.accumulate"),
        (["robust.mean=median"], "cannot weight them"),
        (["codec.rate=auto"], "a client keeps nothing"),
        (["codec.sync=qu:bits=8"], "codec.feedback"),
        (["train.track_bias=1"], "mode async has none"),
        (['model.cut=["layer1", "fc"]'], "mode async needs one name"),
        (["link.speeds=[1, 0]"], "link.speeds"),
        (["link.speeds=[-1.0]"], "link.speeds"),
        (["link.jitter=1.0"], "link.jitter: expected less than 1"),
        (["link.jitter=-0.1"], "link.jitter"),
    ],
)
def test_what_cannot_work_says_why(settings: list[str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, ["train.mode=async", *settings])
    assert says in str(caught.value)


@pytest.mark.parametrize("setting", ["train.buffer=3", "train.max_staleness=3"])
def test_other_modes_have_no_buffer(setting: str) -> None:
    with pytest.raises(ConfigError, match=f"{setting[:-2]}: is of mode async, not sequential"):
        load(None, ["train.mode=sequential", setting])


def test_defaults_and_identity() -> None:
    config = load(None, ["train.mode=async", "train.clients=5"])
    assert (config.train.arrivals, config.train.staleness) == (3, 50)
    assert load(None, ["train.mode=async", "train.max_staleness=0"]).train.staleness == 0
    plain = load(None).identity()
    assert {"buffer", "max_staleness"}.isdisjoint(plain["train"])
    assert "link" not in plain
    # The speeds decide who comes first, and so the results, in mode async alone.
    assert load(None, ["link.speeds=[1, 0.5]"]).identity() == plain
    slow = load(None, ["train.mode=async", "link.speeds=[1, 0.5]"]).identity()
    assert slow["link"]["speeds"] == [1, 0.5]
    assert slow != load(None, ["train.mode=async"]).identity()
    # A run whose rate followed its link keeps the identity that it had before there were speeds.
    assert {"speeds", "jitter"}.isdisjoint(load(None, ["codec.rate=auto"]).identity()["link"])
