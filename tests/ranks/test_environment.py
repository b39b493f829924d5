import pytest

from cutlayer.errors import ConfigError
from cutlayer.ranks.environment import RankEnvironment

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "x",
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "TORCHELASTIC_RESTART_COUNT": "2",
}


def test_what_torchrun_says() -> None:
    assert RankEnvironment.read(TORCHRUN) == RankEnvironment(rank=3, world=4, local_rank=1, restarts=2)


def test_without_torchrun_there_is_none() -> None:
    assert RankEnvironment.read({"RANK": "0", "WORLD_SIZE": "1"}) is None


def test_a_broken_environment() -> None:
    with pytest.raises(ConfigError, match="torchrun --nproc-per-node N -m cutlayer serve"):
        RankEnvironment.read({**TORCHRUN, "RANK": "first"})


def test_addresses_count_up_or_are_listed() -> None:
    second = RankEnvironment(3, 4, 1, 0)
    assert second.address("10.0.0.7:50551") == "10.0.0.7:50552"
    assert second.address("[::1]:7000") == "[::1]:7001"
    assert second.address("localhost:0") == "localhost:0"
    assert second.address("a:1, b:2") == "b:2"
    with pytest.raises(ConfigError, match="2 addresses, but this machine has a rank 2"):
        RankEnvironment(2, 3, 2, 0).address("a:1,b:2")
    with pytest.raises(ConfigError, match="no port 65536"):
        second.address("a:65535")
