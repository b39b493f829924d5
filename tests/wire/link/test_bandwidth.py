import pytest

from cutlayer.wire.link.bandwidth import Gauge


def test_bandwidth_is_what_confirmations_tell() -> None:
    gauge = Gauge()
    assert gauge.take() is None
    gauge.sent(1, 100, at=0.0)  # small and alone: the round trip
    gauge.confirmed(1, at=0.02)
    gauge.sent(2, 125_000, at=1.0)
    gauge.sent(3, 10, at=1.5)  # waits behind the large one, and tells nothing
    gauge.confirmed(2, at=2.02)
    gauge.confirmed(3, at=2.03)
    assert gauge.take() == pytest.approx(1_000_000)
    assert gauge.take() is None


def test_what_a_broken_connection_swallowed_is_no_measure() -> None:
    gauge = Gauge()
    gauge.sent(1, 125_000, at=0.0)
    gauge.clear()
    gauge.sent(1, 125_000, at=60.0)
    gauge.confirmed(1, at=61.0)
    assert gauge.take() == pytest.approx(1_000_000)


def test_a_confirmation_of_several_measures_the_last() -> None:
    gauge = Gauge()
    gauge.sent(1, 125_000, at=0.0)
    gauge.sent(2, 125_000, at=1.0)
    gauge.confirmed(2, at=2.0)
    gauge.confirmed(1, at=9.0)
    assert gauge.take() == pytest.approx(1_000_000)
