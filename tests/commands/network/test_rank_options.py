from pathlib import Path

import pytest

from cutlayer.commands.network.serve_options import DashboardOptions, RankOptions
from cutlayer.errors import ConfigError
from cutlayer.ranks.environment import RankEnvironment

SECOND = RankEnvironment(rank=1, world=2, local_rank=1, restarts=0)


def test_clients_are_told_where_the_rank_listens_or_what_the_operator_says() -> None:
    assert RankOptions().address(SECOND, "127.0.0.1:0")(6001) == "127.0.0.1:6001"
    assert RankOptions().address(SECOND, "[::1]:0")(6001) == "[::1]:6001"
    assert (
        RankOptions("train.example.org:7000").address(SECOND, "0.0.0.0:0")(6001) == "train.example.org:7001"
    )


def test_everywhere_is_no_address_to_call() -> None:
    with pytest.raises(ConfigError, match="give --advertise HOST:PORT"):
        RankOptions().address(SECOND, "0.0.0.0:50551")


def test_each_rank_has_a_log_and_metrics_of_its_own_and_the_first_the_dashboard() -> None:
    page = DashboardOptions("8080")
    given = (page, Path("a/events.jsonl"), 9000)
    assert RankOptions().of_rank(RankEnvironment(0, 2, 0, 0), *given) == given
    assert RankOptions().of_rank(SECOND, *given) == (DashboardOptions(), Path("a/events-1.jsonl"), 9001)
    assert RankOptions().of_rank(SECOND, page, None, None) == (DashboardOptions(), None, None)
