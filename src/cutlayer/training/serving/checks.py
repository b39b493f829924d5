"""Whether a run can be served: settings that fit its clients, and how many of them it needs to begin."""

from __future__ import annotations

from pathlib import Path

from cutlayer.aggregation.service import SPLIT_SERVER
from cutlayer.config.schema import Config
from cutlayer.data.spec import DataSpec
from cutlayer.errors import ConfigError
from cutlayer.protocol.build import (
    make_plan,
)
from cutlayer.server.elastic import check_elastic
from cutlayer.training import checkpoint
from cutlayer.wire.grpc.server import Listening
from cutlayer.wire.policy import Policy


def clients_needed(config: Config, policy: Policy, directory: Path, earlier: DataSpec | None) -> int | None:
    """How many clients have to be there for the run to begin or to go on; None for all."""
    steps = checkpoint.steps(directory / "checkpoints") if earlier is not None else []
    if earlier is None or not steps:
        return policy.quorum if policy.elastic else None
    if steps[-1] >= make_plan(config.train, earlier.samples).total:
        return 0
    return policy.quorum if policy.straggler == "drop" else None


def check_serving(config: Config, listening: Listening) -> None:
    """Raise unless a run with these settings can be served so."""
    if config.train.track_bias:
        raise ConfigError("train.track_bias needs all clients' data in one process: use `cutlayer train`")
    clients, policy = config.train.clients, listening.policy
    check_elastic(policy, config.train.clients_per_step)
    if not policy.elastic:
        check_names(config, listening)
    if config.train.clients_per_step and listening.aggregator is not None:
        raise ConfigError(
            "train.clients_per_step: the server keeps the clients' half for those who are asked next; leave "
            "out --aggregator"
        )
    if policy.straggler == "drop" and listening.aggregator is not None:
        raise ConfigError("an aggregator that runs alone needs every client: use --straggler wait")
    if config.train.aggregation != "server":
        how = f"train.aggregation = {config.train.aggregation}"
        if policy.straggler == "drop":
            raise ConfigError(f"{how} needs every client: use --straggler wait")
        if listening.aggregator is not None:
            raise ConfigError(
                f"with {how} clients average among themselves: leave out "
                "--aggregator, or set train.aggregation to server"
            )
    if config.train.mode == "async" and listening.aggregator is not None:
        raise ConfigError(
            "train.mode: in mode async the server keeps the clients' half and updates it; an aggregator that "
            "runs alone averages what all clients share at the same time: leave out --aggregator"
        )
    if config.link.speeds:
        raise ConfigError(
            "link.speeds: are those of clients that are simulated in one process; here clients are as fast "
            "as they are. Leave them out"
        )
    if config.codec.memory != "none" and (policy.straggler == "drop" or listening.aggregator is not None):
        raise ConfigError(
            "codec.memory: server and client have to remember the same, so no batch may be left out, and the "
            "server gives a client its memory back; use --straggler wait, and leave out --aggregator"
        )
    if policy.straggler == "drop" and config.train.mode == "relay":
        raise ConfigError("relay needs every client in its turn: use --straggler wait")
    if policy.quorum > clients:
        raise ConfigError(f"a quorum of {policy.quorum} of {clients} clients can never come together")


def check_names(config: Config, listening: Listening) -> None:
    """Raise unless every client of the run has a name, where credentials tell names."""
    # An aggregator's token file also names the server that gives it orders.
    clients, names = config.train.clients, listening.clients(SPLIT_SERVER)
    if listening.security.auth and len(names) != clients:
        raise ConfigError(
            f"the run has {clients} clients, but {len(names)} are named; name each in the token "
            "file, or with --names for certificates, or change train.clients"
        )
    if len(set(names)) != len(names):
        raise ConfigError("two clients have the same name")
