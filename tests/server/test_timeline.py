import pytest

from cutlayer.server.timeline import STAGES, Timeline
from cutlayer.wire.link.model import Link
from cutlayer.wire.messages.types import Report


def report(forward: float, backward: float) -> Report:
    return Report(0, 8, 0.0, 0.0, 0.0, forward, 0.0, 0.0, backward)


def test_the_slowest_client_counts_in_each_phase() -> None:
    timeline = Timeline(Link.parse("8mbit,1ms"))  # a million bytes a second
    timeline.begin(phases=2)
    for client in (0, 1):
        timeline.begun(client, 0)
    timeline.up(0, 1_000_000)
    timeline.up(1, 3_000_000)
    timeline.down(0, 2_000_000)
    timeline.down(1, 0)
    timeline.advance()
    timeline.finished(0, report(5.0, 1.0), 0)
    timeline.finished(1, report(2.0, 1.0), 0)
    timeline.end()
    # First begin, forward and smashed data: 1 + 5 against 3 + 2. Then gradient and backward: 2 + 1 against 1.
    assert timeline.clock.seconds == pytest.approx(0.002 + 6 + 0.002 + 3, abs=1e-9)
    assert timeline.seconds["client_forward"] == 7.0
    assert timeline.seconds["client_backward"] == 2.0
    assert set(timeline.seconds) == set(STAGES)


def test_without_a_link_only_work_counts() -> None:
    timeline = Timeline()
    timeline.begin(phases=3)
    timeline.up(0, 10**12)
    with timeline.server("server"):
        pass
    timeline.finished(0, report(1.0, 0.5), 10**12)
    timeline.end()
    assert timeline.clock.seconds == pytest.approx(1.5, abs=0.01)
    assert 0 <= timeline.seconds["server"] < 0.01
