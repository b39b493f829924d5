"""Whether a run can be spread over ranks, and whether all of them were started alike."""

from __future__ import annotations

import hashlib
import json
import platform
from typing import Any

import torch
from torch import nn

import cutlayer
from cutlayer.config.schema import Config
from cutlayer.errors import ConfigError
from cutlayer.ranks.group import RankGroup
from cutlayer.ranks.work import running_norms
from cutlayer.wire.policy import Policy


def check_settings(config: Config, world: int, policy: Policy, *, aggregator: bool, exact: bool) -> None:
    """Raise unless a run with these settings can have so many ranks."""
    train = config.train
    problems = []
    if world > train.clients:
        problems.append(
            f"{world} ranks, but train.clients = {train.clients}: each rank needs a client at least; start "
            f"torchrun with {train.clients} ranks at most, in all"
        )
    if train.mode not in ("parallel", "u-shaped"):
        problems.append(
            f"train.mode = {train.mode} updates the server's half after every client, so that all ranks but "
            "one would wait; use parallel or u-shaped, or one process"
        )
    if train.clients_per_step:
        problems.append(
            "train.clients_per_step: one process keeps the clients' half for those who are asked next; leave "
            "it out, or use one process"
        )
    if config.codec.memory != "none":
        problems.append(
            "codec.memory: one process remembers the samples of all clients; leave it out, or use one process"
        )
    if train.server_batching == "fused":
        problems.append(
            "train.server_batching = fused runs the batches of all clients as one pass, in one process; set "
            "it to per_client"
        )
    if train.aggregation != "server" or aggregator:
        problems.append(
            "ranks average what clients share themselves: set train.aggregation to server, and leave out "
            "--aggregator"
        )
    if train.shard_server and train.mode != "parallel":
        problems.append(
            "train.shard_server: ranks make their passes at the same time, and clients of a U-shape answer "
            "in the middle of one; use mode parallel"
        )
    if train.shard_server and exact:
        problems.append(
            "--exact: ranks take turns, and with train.shard_server a pass needs all of them; leave one out"
        )
    if train.shard_server and config.robust.clip_gradient:
        problems.append(
            "robust.clip_gradient needs the whole gradient of one client, and with train.shard_server no "
            "rank has one; leave one out"
        )
    if policy.straggler != "wait":
        problems.append(
            "--straggler drop: a mean over ranks is made of the clients that the plan names; use "
            "--straggler wait"
        )
    if problems:
        raise ConfigError("\n".join(problems))


def check_part(part: nn.Module) -> None:
    """Raise if the server's half keeps statistics that ranks cannot merge."""
    for norm in running_norms(part):
        if norm.momentum is None:
            raise ConfigError(
                "a batch norm of the server's half has momentum = None, a running mean over all batches, "
                "which ranks cannot merge; give it a momentum, or use --exact"
            )


def check_alike(group: RankGroup, config: Config, *, exact: bool) -> None:
    """Raise, at every rank, unless all were started with the same settings and releases."""
    settings = json.dumps(config.identity(), sort_keys=True, default=str)
    mine: dict[str, Any] = {
        "cutlayer": cutlayer.__version__,
        "PyTorch": torch.__version__,
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "--exact": exact,
        "train.shard_server": config.train.shard_server,
        "settings": hashlib.sha256(settings.encode()).hexdigest()[:12],
    }
    found = group.talk("alike", **mine)
    for key in mine:
        values = [one[key] for one in found]
        if len(set(values)) > 1:
            told = ", ".join(f"{value} at rank {rank}" for rank, value in enumerate(values))
            remedy = (
                "start every rank with the same configuration"
                if key in ("settings", "--exact", "train.shard_server")
                else "install the same release on all machines"
            )
            raise ConfigError(f"ranks differ in {key}: {told}; {remedy}")
