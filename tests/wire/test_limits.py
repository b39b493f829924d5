import pytest

from cutlayer.errors import ConfigError
from cutlayer.wire.limits import Limits, Rate
from cutlayer.wire.policy import Policy


def test_a_rate_allows_bursts_and_steady_traffic_but_no_flood() -> None:
    now = 0.0
    rate = Rate(10, lambda: now)
    assert not any(rate.exceeded() for _ in range(50))
    assert rate.exceeded()
    now = 100.0
    for _ in range(1000):
        now += 0.1
        assert not rate.exceeded()


@pytest.mark.parametrize("wrong", [{"message": 0}, {"rate": -1.0}, {"hello": float("nan")}])
def test_limits_are_positive(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Limits(**wrong)  # type: ignore[arg-type]


def test_policies_that_make_no_sense() -> None:
    with pytest.raises(ConfigError, match="deadline"):
        Policy("drop", 0)
    with pytest.raises(ConfigError, match="quorum"):
        Policy("drop", 1, 0)
