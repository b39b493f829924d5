"""Rates that follow the link: the rule by hand, in a run, in a checkpoint."""

from collections.abc import Callable

import pytest
import torch

from cutlayer.codecs import codec
from cutlayer.errors import CheckpointError, ConfigError
from cutlayer.rates.adaptive import AdaptiveRate, RateBounds
from cutlayer.rates.ladder import ladder
from cutlayer.training.local_run import LocalRun
from cutlayer.wire.link.model import Link
from cutlayer.wire.meter import Direction

Start = Callable[..., LocalRun]
AUTO = ["codec.up=qu", "codec.rate=auto:min=1,max=8", "link.device=1e8"]


@pytest.mark.parametrize("spec", ["ms:rounding=nearest", "qu:rounding=stochastic", "sp", "rt:alpha=0.2"])
def test_a_ladder_climbs_in_one_family(spec: str) -> None:
    given = codec(spec)
    steps = ladder(given, 1, 8)
    shape = (32, 64, 8, 8)
    measured = [step.codec.bits_per_element(shape) for step in steps]
    assert measured == sorted(measured)
    assert len(set(measured)) == len(steps) >= 8
    for step, bits in zip(steps, measured, strict=True):
        assert bits == pytest.approx(step.bits, abs=0.02)
        same = "alpha" if given.name == "rt" else "rounding" if given.name in ("ms", "qu") else "scope"
        assert getattr(step.codec, same) == getattr(given, same)


def test_ladders_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="the rate of dense cannot be chosen"):
        ladder(codec("dense"), 1, 8)
    with pytest.raises(ConfigError, match=r"ms has no rate between 0.5 and 1 bits"):
        ladder(codec("ms"), 0.5, 1)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("fast", "not understood"),
        ("auto:min=0", "'min=0'"),
        ("auto:min=9,max=8", "min must not be above max"),
        ("auto:min=1,min=2", "'min=2'"),
        ("auto:speed=1", "'speed=1'"),
    ],
)
def test_bounds_are_checked(spec: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        RateBounds.parse(spec)
    assert str(RateBounds.parse(str(RateBounds.parse("auto:max=4")))) == "auto:min=1,max=4,share=1"


def test_the_rule_by_hand() -> None:
    """1000 elements on 10 kbit/s, half a second of work: 5000 bits, so 5 an element, header included."""
    speed = [10_000.0]
    rate = AdaptiveRate(ladder(codec("qu"), 1, 8), 1.0, lambda: speed[0])
    chosen = []
    for _ in range(3):
        rate.choose(1000)
        chosen.append(rate.chosen.bits)
        rate.sent(int((rate.chosen.bits + 0.5) * 125), 1000)
        rate.worked(8, 0.5)
    # Nothing is known before the first step; then 5 - 0.5 bits are left for the payload.
    assert chosen == [1, 4, 4]
    speed[0] = 1e9
    for _ in range(40):  # the mean forgets
        rate.choose(1000)
    assert rate.chosen.bits == 8
    speed[0] = 1.0
    for _ in range(40):
        rate.choose(1000)
    assert rate.chosen.bits == 1
    other = AdaptiveRate(rate.steps, 1.0, lambda: None)
    other.restore(rate.state())
    assert other.choose(1000) == rate.choose(1000)
    with pytest.raises(CheckpointError, match="1 values"):
        other.restore({"rate": torch.zeros(1)})


def test_each_client_follows_its_own_link(start: Start) -> None:
    """Sending takes no longer than the reckoned work, and a faster link carries more."""
    session = start(*AUTO, "link.spec=4mbit,5ms; 400kbit,30ms; 1kbit")
    records = [session.step().record() for _ in range(4)]
    assert records[0]["bits"].keys() == {"0", "1", "2"}
    fast, slow, slowest = (records[-1]["bits"][client] for client in "012")
    assert fast > slow >= slowest
    assert slowest == records[0]["bits"]["2"]  # the lowest step, with which everybody begins
    _, work, _ = session.clients.clients[0].rate.state()["rate"].tolist()
    elements = records[-1]["raw_bytes"]["up/smashed"] / 4 / 3
    link = Link.parse("4mbit")
    assert link.seconds(Direction.UP, int(fast * elements / 8)) <= work


@pytest.mark.parametrize("mode", [[], ["train.sync=2"], ["train.mode=relay"]], ids=str)
def test_a_run_with_its_own_rates_repeats_and_resumes_exactly(
    resumes_exactly: Callable[..., None], mode: list[str]
) -> None:
    settings = [*AUTO, *mode, "link.spec=2mbit,5ms; 300kbit", "codec.sync=qu:bits=4", "data.limit=100"]
    resumes_exactly(settings, 5)


def test_a_rate_in_one_process_needs_a_link_and_a_codec(start: Start) -> None:
    with pytest.raises(ConfigError, match="--link"):
        start(*AUTO)
    with pytest.raises(ConfigError, match=r"no codec.up whose rate"):
        start("codec.rate=auto")
    with pytest.raises(ConfigError, match="the rate of km"):
        start("codec.rate=auto", "codec.up=km")
