"""Advice: step times by hand, and against the clock of a run."""

import pytest
import torch

from cutlayer.codecs import codec
from cutlayer.errors import ConfigError
from cutlayer.split import CutPoint
from cutlayer.tools.advise import BEGIN_STEP, REPORT, Setting, advise, candidates, feature_maps, speed
from cutlayer.wire.link.model import Link

# 8 channels of 4x4: 128 elements, 512 bytes a sample. 1 M and 9 M multiply-adds, 100 and 900 weights.
POINT = CutPoint("layer1", (8, 4, 4), 100, 900, 1_000_000, 9_000_000)
LATE = CutPoint("layer2", (4,), 1000, 10, 9_000_000, 1_000_000)
FEATURES = {
    "layer1": torch.rand(10, 8, 4, 4, generator=torch.Generator().manual_seed(0)),
    "layer2": torch.rand(10, 4, generator=torch.Generator().manual_seed(0)),
}


def test_times_by_hand() -> None:
    # 8 Mbit/s are a million bytes a second up; twice that down; 10 ms of latency.
    link = Link.parse("up=8mbit,down=16mbit,latency=10ms")
    setting = Setting(link, device=1e9, server=1e10, batch=10, classes=10)
    (choice,) = advise([POINT], FEATURES, [codec("dense")], setting, budget=0.0)
    frame = len(codec("dense").encode(FEATURES["layer1"]))
    assert 5120 < frame <= 5120 + 64
    assert choice.fits
    assert choice.error == 0
    assert choice.client_seconds == pytest.approx(3 * 1e6 * 10 / 1e9)  # 30 ms
    assert choice.server_seconds == pytest.approx(3 * 9e6 * 10 / 1e10)  # 27 ms
    # Ten labels of four bits are five bytes; 100 weights are 400 bytes up, and their mean 400 bytes down.
    assert choice.up_bytes == frame + 5 + 400 + REPORT
    assert choice.down_bytes == BEGIN_STEP + 400 + 5120
    assert choice.up_seconds == pytest.approx(2 * 0.010 + choice.up_bytes / 1e6)
    assert choice.down_seconds == pytest.approx(2 * 0.010 + choice.down_bytes / 2e6)
    total = 0.030 + 0.027 + 0.020 + choice.up_bytes / 1e6 + 0.020 + choice.down_bytes / 2e6
    assert choice.seconds == pytest.approx(total)
    assert (BEGIN_STEP, REPORT) == (26, 41)


def test_codecs_and_sync_count() -> None:
    link = Link.parse("8mbit")
    setting = Setting(link, 1e9, 1e10, 10, 10, codec("qu:bits=8"), codec("qu:bits=8"), sync_every=4)
    (choice,) = advise([POINT], FEATURES, [codec("qu:bits=4")], setting, budget=0.1)
    frame = len(codec("qu:bits=4").encode(FEATURES["layer1"]))
    assert choice.up_bytes == frame + 5 + 100 // 4 + REPORT
    assert choice.down_bytes == BEGIN_STEP + 100 // 4 + 1280
    assert choice.bits == pytest.approx(8 * frame / 1280)
    (alone,) = advise(
        [POINT], FEATURES, [codec("qu:bits=4")], Setting(link, 1e9, 1e10, 10, sync_every=0), 0.1
    )
    assert alone.up_bytes == frame + 5 + REPORT


@pytest.mark.parametrize(
    ("link", "device", "cut"),
    [("1gbit", 1e8, "layer1"), ("100kbit", 1e11, "layer2")],  # a slow device cuts early, a slow link late
)
def test_the_bottleneck_decides_the_cut(link: str, device: float, cut: str) -> None:
    setting = Setting(Link.parse(link), device, 1e11, batch=10, sync_every=0)
    choices = advise([POINT, LATE], FEATURES, [codec("dense"), codec("qu:bits=1")], setting, budget=0.01)
    assert (choices[0].cut, choices[0].codec) == (cut, "dense")
    coarse = [choice for choice in choices if choice.codec == "qu:bits=1"]
    assert not any(choice.fits for choice in coarse)
    assert choices[2:] == coarse


def test_the_shortest_step_within_the_budget_wins() -> None:
    setting = Setting(Link.parse("1mbit"), 1e9, 1e10, 10)
    codecs = [codec(f"qu:bits={bits}") for bits in (8, 4, 2, 1)]
    errors = {c.codec: c.error for c in advise([POINT], FEATURES, codecs, setting, 1.0)}
    budget = (errors["qu:bits=4"] + errors["qu:bits=2"]) / 2
    found = advise([POINT], FEATURES, codecs, setting, budget)
    assert [choice.codec for choice in found] == ["qu:bits=4", "qu:bits=8", "qu:bits=1", "qu:bits=2"]


def test_speeds() -> None:
    assert speed("2.5gmadds", None) == 2.5e9
    assert speed("0.1", 4e10) == pytest.approx(4e9)
    for text in ("fast", "0", "-1", "5ghz", ""):
        with pytest.raises(ConfigError, match="is not understood"):
            speed(text, 1.0)
    with pytest.raises(ConfigError, match="relative"):
        speed("0.1", None)


def test_feature_maps_are_copies_and_cuts_have_weights_on_both_sides() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(inplace=True), torch.nn.Linear(4, 2))
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    maps = feature_maps(model, x, ["0", "1"])
    assert torch.equal(maps["0"].relu(), maps["1"])
    assert bool((maps["0"] < 0).any())
    assert not model[0]._forward_hooks
    bare = CutPoint("flatten", (4,), 0, 10, 0, 10)
    whole = CutPoint("fc", (2,), 10, 0, 10, 0)
    assert candidates([bare, POINT, whole]) == [POINT]
