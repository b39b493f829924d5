import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlayer.errors import LinkError
from cutlayer.server.timeline import VirtualClock
from cutlayer.wire.link.model import Link
from cutlayer.wire.meter import Direction

rates = st.floats(min_value=1e-3, max_value=1e15) | st.integers(1, 10**12).map(float)
latencies = st.just(0.0) | st.floats(min_value=1e-9, max_value=1e4)


@given(rates, rates, latencies)
def test_the_string_gives_the_link_back(up, down, latency):
    link = Link(up, down, latency)
    assert Link.parse(str(link)) == link


@given(
    st.text(max_size=40) | st.from_regex(r"(up=|down=|latency=)?[0-9.]{1,4}(k|m|g)?(bit|s),?", fullmatch=True)
)
def test_any_string_is_a_link_or_a_clear_error(text):
    try:
        link = Link.parse(text)
    except LinkError:
        with pytest.raises(LinkError, match="a link is written as"):
            Link.parse(text)
    else:
        assert Link.parse(str(link)) == link


@pytest.mark.parametrize(
    ("spec", "link", "text"),
    [
        ("100mbit,10ms", Link(1e8, 1e8, 0.01), "100mbit,10ms"),
        ("10ms, 100Mbit", Link(1e8, 1e8, 0.01), "100mbit,10ms"),
        ("1.5gbit", Link(1.5e9, 1.5e9), "1.5gbit"),
        ("256kbit,0.3s", Link(256e3, 256e3, 0.3), "256kbit,300ms"),
        ("down=100mbit,latency=10ms,up=10mbit", Link(1e7, 1e8, 0.01), "up=10mbit,down=100mbit,latency=10ms"),
    ],
)
def test_ways_to_write_a_link(spec, link, text):
    assert Link.parse(spec) == link
    assert str(link) == text


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("", "not understood"),
        ("10ms", "no rate up and down"),
        ("up=1mbit", "no rate down"),
        ("100mbps", "unknown unit 'mbps'"),
        ("1mbit,2mbit", "up twice"),
        ("latency=1mbit,1mbit", "wrong kind of unit"),
        ("up=10ms,down=1mbit", "wrong kind of unit"),
        ("0mbit", "more than 0"),
        ("-1mbit", "not understood"),
        ("1e999mbit", "more than 0"),
        ("1e999999999999999999999mbit", "more than 0"),
        ("1e-99999999999999999999mbit", "more than 0"),
        ("1e-300bit", "more than 0"),
        ("1mbit,1e999999999999999999s", "latency must be 0 to"),
        ("9" * 10**6 + "bit", "characters"),
    ],
)
def test_mistakes_are_named(spec, says):
    with pytest.raises(LinkError, match=says):
        Link.parse(spec)


def test_seconds_are_latency_and_transfer():
    link = Link.parse("up=10mbit,down=100mbit,latency=10ms")
    assert link.seconds(Direction.UP, 1_250_000) == pytest.approx(1.01)
    assert link.seconds(Direction.DOWN, 1_250_000) == pytest.approx(0.11)
    assert link.seconds(Direction.UP, 0) == 0.01


def test_the_clock_takes_the_slowest_of_parallel_clients_and_the_sum_of_turns():
    clock = VirtualClock()
    assert clock.parallel([1.0, 3.0, 2.0]) == 3.0
    assert clock.parallel([]) == 0.0
    clock.add(0.5)
    assert clock.seconds == 3.5
    other = VirtualClock()
    other.restore(json.loads(json.dumps(clock.state())))
    assert other.seconds == 3.5


@pytest.mark.parametrize("seconds", [-1.0, math.nan])
def test_the_clock_does_not_go_back(seconds):
    with pytest.raises(LinkError):
        VirtualClock().add(seconds)
