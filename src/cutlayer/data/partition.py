"""Share the training samples among clients: evenly, in stretches, by Dirichlet draws, or by label shards.

Each function returns one tensor of sample indices per client. Every sample goes to exactly one
client and every client gets at least one; the same arguments give the same parts.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from cutlayer.data.form import DataSource
from cutlayer.data.stratify import classes_or_zeros
from cutlayer.errors import DataError
from cutlayer.seeding import generator
from cutlayer.seeds import derive

Partition = tuple[Tensor, ...]


def even(labels: Tensor, clients: int, seed: int) -> Partition:
    """Shuffle and cut into parts whose sizes differ by at most one: the paper's partition."""
    _check(labels, clients)
    order = torch.randperm(len(labels), generator=generator("partition", seed))
    return tuple(order.tensor_split(clients))


def contiguous(labels: Tensor, clients: int, seed: int) -> Partition:
    """Cut into stretches whose sizes differ by at most one, in the order of the data."""
    _check(labels, clients)
    return tuple(torch.arange(len(labels)).tensor_split(clients))


def dirichlet(labels: Tensor, clients: int, seed: int, alpha: float) -> Partition:
    """Share out each class in proportions drawn from Dirichlet(alpha).

    Small alpha gives each class to few clients, large alpha approaches even. A draw may leave
    clients without any sample. Drawing again would never end with many clients and a small alpha,
    so the draw is repaired: each empty client takes one sample from the client that then has most.
    """
    _check(labels, clients)
    if not (math.isfinite(alpha) and alpha > 0):
        raise DataError(f"Dirichlet alpha must be a positive number, not {alpha}")
    rng = np.random.default_rng(derive("dirichlet", seed))
    owned: list[list[Tensor]] = [[] for _ in range(clients)]
    for samples in _by_class(labels, seed):
        shares = rng.dirichlet(np.full(clients, alpha)).cumsum()
        # A sum that rounding left below one must still hand out the last sample.
        ends = np.floor(shares / shares[-1] * len(samples) + 0.5).astype(np.int64)
        for client, part in enumerate(samples.tensor_split(torch.from_numpy(ends[:-1]))):
            if len(part):
                owned[client].append(part)
    parts = [torch.cat(pieces) if pieces else labels.new_empty(0) for pieces in owned]
    return tuple(_repair(parts))


def by_shard(labels: Tensor, clients: int, seed: int, shards: int) -> Partition:
    """Sort by label, cut into `clients * shards` pieces and deal each client `shards` of them.

    With two shards most clients see two classes: the usual hard case of federated learning.
    """
    _check(labels, clients)
    if shards < 1:
        raise DataError(f"shards must be at least 1 a client, not {shards}")
    pieces = clients * shards
    if pieces > len(labels):
        raise DataError(
            f"{clients} clients with {shards} shards each need {pieces} samples, "
            f"there are {len(labels)}; use fewer clients or fewer shards"
        )
    cut = torch.cat(_by_class(labels, seed)).tensor_split(pieces)
    deal = torch.randperm(pieces, generator=generator("deal", seed)).tolist()
    return tuple(
        torch.cat([cut[piece] for piece in deal[client * shards : (client + 1) * shards]])
        for client in range(clients)
    )


def summary(parts: Sequence[Tensor], labels: Tensor, classes: int) -> list[list[int]]:
    """Count samples: one row a client, one column a class, for a table or a plot."""
    owner = torch.cat([torch.full_like(part, client) for client, part in enumerate(parts)])
    cell = owner * classes + labels[torch.cat(list(parts))]
    counts = torch.bincount(cell, minlength=len(parts) * classes)
    rows: list[list[int]] = counts.view(len(parts), classes).tolist()
    return rows


def _check(labels: Tensor, clients: int) -> None:
    if clients < 1:
        raise DataError(f"there must be at least 1 client, not {clients}")
    if clients > len(labels):
        raise DataError(
            f"{clients} clients but only {len(labels)} samples, and each client needs one; "
            "use fewer clients or more data"
        )


def _by_class(labels: Tensor, seed: int) -> list[Tensor]:
    """Return the shuffled samples of each class that occurs, in class order."""
    order = torch.randperm(len(labels), generator=generator("partition", seed))
    order = order[labels[order].argsort(stable=True)]
    counts = torch.bincount(labels)
    return list(torch.split(order, counts[counts > 0].tolist()))


def _repair(parts: list[Tensor]) -> list[Tensor]:
    largest = [(-len(part), client) for client, part in enumerate(parts) if len(part)]
    heapq.heapify(largest)
    for client, part in enumerate(parts):
        if len(part):
            continue
        size, donor = heapq.heappop(largest)
        parts[client], parts[donor] = parts[donor][-1:], parts[donor][:-1]
        heapq.heappush(largest, (size + 1, donor))
    return parts


#: The kinds of partition, each with the setting that its spec string carries, if any.
PARTITIONS: dict[str, tuple[Callable[..., Partition], dict[str, Callable[[str], float]]]] = {
    "even": (even, {}),
    "contiguous": (contiguous, {}),
    "dirichlet": (dirichlet, {"alpha": float}),
    "shard": (by_shard, {"shards": int}),
}


# Those that do not look at classes.
_ANY_TARGETS = ("even", "contiguous")


def partition_data(spec: str, train: DataSource, clients: int, seed: int) -> Partition:
    """As `partition`, for targets of any kind. Without classes there are `even` and `contiguous`.

    Labels are looked at only where they matter: data that are read as needed would all be read for them.
    """
    kind = spec.partition(":")[0]
    if kind in _ANY_TARGETS:
        return partition(spec, torch.zeros(len(train), dtype=torch.int64), clients, seed)
    if not train.form.classed and kind in PARTITIONS:
        raise DataError(
            f"partition {kind!r} shares out classes, and the targets of {train.name} are "
            f"{train.form.target.describe()}; use {' or '.join(_ANY_TARGETS)}"
        )
    return partition(spec, classes_or_zeros(train), clients, seed)


def partition(spec: str, labels: Tensor, clients: int, seed: int) -> Partition:
    """Partition by a spec string: `even`, `contiguous`, `dirichlet:alpha=0.5` or `shard:shards=2`."""
    kind, _, text = spec.partition(":")
    if kind not in PARTITIONS:
        raise DataError(f"no partition {kind!r}; choose from {', '.join(PARTITIONS)}")
    function, settings = PARTITIONS[kind]
    given = dict(item.partition("=")[::2] for item in text.split(",") if item)
    if given.keys() != settings.keys():
        example = {"dirichlet": "dirichlet:alpha=0.5", "shard": "shard:shards=2"}.get(kind, kind)
        raise DataError(f"partition {spec!r} must be written like {example!r}")
    try:
        values = {name: settings[name](value) for name, value in given.items()}
    except ValueError as error:
        raise DataError(f"partition {spec!r}: {error}") from error
    return function(labels, clients, seed, **values)
