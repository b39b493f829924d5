"""Rates in stages of the run: the plan by hand, in runs, in evaluation, resumed."""

from collections.abc import Callable

import pytest

from cutlayer.codecs import codec
from cutlayer.errors import ConfigError
from cutlayer.rates.scheduled import RateSchedule, ScheduledRate, fixed_or_scheduled
from cutlayer.training.local_run import LocalRun

Start = Callable[..., LocalRun]
RISING = ["codec.up=ems:bpe=4", "codec.rate=until:50%=0.5"]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("until", "write shares of the run"),
        ("until:", "write shares of the run"),
        ("until:80=1", "'80=1'"),
        ("until:80%", "'80%'"),
        ("until:0%=1", "'0%=1'"),
        ("until:100%=1", "'100%=1'"),
        ("until:nan%=1", "'nan%=1'"),
        ("until:80%=0", "'80%=0'"),
        ("until:80%=33", "'80%=33'"),
        ("until:80%=nan", "'80%=nan'"),
        ("until:80%=1,40%=2", "shares of the run must increase"),
        ("until:40%=1,40%=2", "shares of the run must increase"),
        ("since:40%=1", "not understood"),
    ],
)
def test_plans_are_checked(spec: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        RateSchedule.parse(spec)


def test_a_plan_is_written_as_it_is_read() -> None:
    spec = "until:40%=0.5,60%=1,80%=2"
    assert str(RateSchedule.parse(spec)) == spec
    assert str(RateSchedule.parse(" until: 40% = .50 ,60.0%=1, 80%=2.0")) == spec


@pytest.mark.parametrize("epochs", [5, 7, 10, 200])
def test_a_stage_ends_with_its_share_of_the_epochs(epochs: int) -> None:
    rate = fixed_or_scheduled("until:40%=0.5,80%=1", codec("ems:bpe=3,transform=dct"), epochs)
    chosen = [str(rate.choose(100, epoch)) for epoch in range(epochs)]
    tenths = [10 * epoch for epoch in range(epochs)]
    bits = [0.5 if t < 4 * epochs else 1.0 if t < 8 * epochs else 3.0 for t in tenths]
    assert chosen == [str(codec(f"ems:bpe={b},transform=dct")) for b in bits]


def test_a_stage_may_end_within_an_epoch() -> None:
    rate = fixed_or_scheduled("until:25%=1", codec("ems:bpe=3"), 1)
    steps = [str(rate.choose(100, step / 8)) == "ems:bpe=1.0" for step in range(8)]
    assert steps == [True, True] + [False] * 6


def test_other_families_keep_their_parameters() -> None:
    rate = fixed_or_scheduled("until:50%=2", codec("qu:bits=4,rounding=stochastic"), 2)
    assert [str(rate.choose(8, epoch)) for epoch in (0, 1)] == [
        "qu:bits=2,rounding=stochastic",
        "qu:bits=4,rounding=stochastic",
    ]


def test_a_fixed_rate_is_the_codec_itself() -> None:
    rate = fixed_or_scheduled("fixed", codec("ms"), 5)
    assert not isinstance(rate, ScheduledRate)
    assert rate.choose(8, 3.5) == rate.codec == codec("ms")
    assert rate.state() == {}


def test_a_run_sends_what_was_planned(start: Start) -> None:
    session = start(*RISING, "data.limit=600", "train.batch_size=32", "train.drop_last=true")
    records = [session.step().record() for _ in range(session.server.plan.total)]
    half = len(records) // 2
    first = [bits for record in records[:half] for bits in record["bits"].values()]
    second = [bits for record in records[half:] for bits in record["bits"].values()]
    assert max(first) <= 0.5
    assert 3 < min(second) <= max(second) <= 4
    assert records[0]["error"] > 10 * records[-1]["error"]
    assert not any(name.endswith("rate") for name in session.state()[0])


@pytest.mark.parametrize(
    "mode", [[], ["train.mode=relay"], ["train.mode=u-shaped", 'model.cut=["layer1", "fc"]']], ids=str
)
def test_it_resumes_exactly(resumes_exactly: Callable[..., None], mode: list[str]) -> None:
    resumes_exactly([*RISING, *mode, "data.limit=100"], 3)


def test_evaluation_is_at_the_rate_of_the_end(start: Start) -> None:
    rising, fixed = start(*RISING).evaluate(), start("codec.up=ems:bpe=4").evaluate()
    assert (rising.loss, rising.bytes) == (fixed.loss, fixed.bytes)


def test_settings_that_cannot_be(start: Start) -> None:
    with pytest.raises(ConfigError, match=r"no codec.up whose rate"):
        start("codec.rate=until:50%=1")
    with pytest.raises(ConfigError, match="the rate of dense"):
        start("codec.rate=until:50%=1", "codec.up=dense")
    with pytest.raises(ConfigError, match=r"qu has no rate of 1.5 bits.*whole bits"):
        start("codec.rate=until:50%=1.5", "codec.up=qu")
    with pytest.raises(ConfigError, match=r"ms has no rate of 1 bits an element; its lowest is 1.1"):
        start("codec.rate=until:50%=1", "codec.up=ms")
    for unknown in ("slow", "fixed:80%=1", ":80%=1"):
        with pytest.raises(ConfigError, match="use fixed, auto"):
            start(f"codec.rate={unknown}", "codec.up=ms")
