from typing import Any

import pytest
from torch import nn

from cutlayer.config.schema import load
from cutlayer.errors import ConfigError
from cutlayer.ranks.checks import check_alike, check_part, check_settings
from cutlayer.wire.policy import Policy


def check(*settings: str, world: int = 2, policy: Policy | None = None, **how: bool) -> None:
    config = load(None, settings)
    check_settings(config, world, policy or Policy(), **{"aggregator": False, "exact": False} | how)


@pytest.mark.parametrize(
    ("settings", "how", "told"),
    [
        (
            ["train.clients=3"],
            {"world": 4},
            "4 ranks, but train.clients = 3: each rank needs a client at least",
        ),
        (["train.mode=sequential"], {}, "sequential updates the server's half after every client"),
        (["train.mode=relay"], {}, "relay updates the server's half after every client"),
        (["train.mode=async"], {}, "use parallel or u-shaped, or one process"),
        (["train.clients_per_step=2"], {}, "leave it out, or use one process"),
        (["train.server_batching=fused"], {}, "set it to per_client"),
        (["train.aggregation=allreduce"], {}, "set train.aggregation to server"),
        ([], {"aggregator": True}, "leave out --aggregator"),
        ([], {"policy": Policy("drop")}, "use --straggler wait"),
        (["train.shard_server=true"], {"exact": True}, "leave one out"),
        (["train.shard_server=true", "robust.clip_gradient=1"], {}, "no rank has one"),
        (
            ["train.shard_server=true", "train.mode=u-shaped", 'model.cut=["layer1","fc"]'],
            {},
            "in the middle of one",
        ),
    ],
)
def test_what_ranks_cannot_do_is_said(settings: list[str], how: dict, told: str) -> None:
    check()
    with pytest.raises(ConfigError) as error:
        check(*settings, **how)
    assert told in str(error.value)


def test_statistics_that_cannot_be_merged() -> None:
    check_part(nn.BatchNorm1d(2))
    with pytest.raises(ConfigError, match="give it a momentum, or use --exact"):
        check_part(nn.Sequential(nn.BatchNorm1d(2, momentum=None)))


class OtherRank:
    """A group whose second rank differs in one thing."""

    def __init__(self, key: str, value: object) -> None:
        self.key, self.value = key, value

    def talk(self, point: str, **say: object) -> list[dict[str, object]]:
        return [say, say | {self.key: self.value}]


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        ("cutlayer", "0.0.1", "install the same release on all machines"),
        ("PyTorch", "1.0", "install the same release on all machines"),
        ("--exact", True, "start every rank with the same configuration"),
        ("train.shard_server", True, "start every rank with the same configuration"),
    ],
)
def test_ranks_that_differ_say_in_what(key: str, value: object, remedy: str) -> None:
    group: Any = OtherRank(key, value)
    with pytest.raises(
        ConfigError, match=f"ranks differ in {key}: .* at rank 0, {value} at rank 1; {remedy}"
    ):
        check_alike(group, load(None, ()), exact=False)
    check_alike(OtherRank("nothing", 0), load(None, ()), exact=False)  # type: ignore[arg-type]
