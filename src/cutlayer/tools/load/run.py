"""Light clients in a few processes, and what they saw: latency, throughput, errors."""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cutlayer.errors import NetworkError, RefusedError
from cutlayer.tools.load.answers import Prepared
from cutlayer.tools.load.light_clients import LightClients, Tally
from cutlayer.wire.grpc.connection import Connection
from cutlayer.wire.security.credentials import ClientSecurity

#: The percentiles that are reported.
PERCENTILES = (50, 90, 99, 100)
Identity = tuple[ClientSecurity, int | None]


@dataclass
class LoadReport:
    """What all clients saw."""

    clients: int
    connected: int
    """How many were offered the settings of the run."""
    members: int
    """How many took part."""
    connect_seconds: float
    """From the first connection that was begun to the last that was offered the settings."""
    seconds: float
    """From the first step to the last."""
    client_steps: int
    """Batches that were answered with a gradient, of all clients."""
    client_steps_per_second: float
    up_bytes: int
    down_bytes: int
    megabytes_per_second: float
    latency_seconds: dict[str, float]
    """From sending a batch to its gradient: percentiles over all clients and steps."""
    errors: dict[str, int]
    """What went wrong, and how often."""


def offered(address: str, security: ClientSecurity, claims: int | None, retry: float) -> Any:
    """What a server offers whoever comes: the settings of its run. The connection is closed again."""
    connection = Connection(address, security, claims=claims, retry=retry)
    try:
        event = connection.events.get(timeout=retry + 60)
    except queue.Empty:
        raise NetworkError(f"{address}: the server has not said anything for {retry + 60:g} s") from None
    finally:
        connection.close()
    if event.kind == "lost":
        raise event.content
    if event.kind == "goodbye":
        raise RefusedError(f"{address}: {event.content[1]}")
    return event.content


def generate_load(
    address: str,
    identities: Sequence[Identity],
    prepared: Prepared,
    *,
    processes: int = 2,
    seconds: float | None = None,
    retry: float = 60.0,
    progress: Callable[[Tally], None] = lambda tally: None,
) -> LoadReport:
    """Have light clients take part until the run is over, or for so many seconds."""
    context = multiprocessing.get_context("spawn")
    tallies: Any = context.Queue()
    stop = context.Event()
    shares = [identities[i::processes] for i in range(min(processes, len(identities)))]
    workers = [
        context.Process(target=_work, args=(address, share, prepared, retry, i, tallies, stop), daemon=True)
        for i, share in enumerate(shares)
    ]
    for worker in workers:
        worker.start()
    latest: dict[int, Tally] = {}
    first = last = connected = began = time.monotonic()
    ended: set[int] = set()
    try:
        while len(ended) < len(workers):
            if seconds is not None and time.monotonic() - began > seconds:
                stop.set()
            try:
                number, tally, final = tallies.get(timeout=0.2)
            except queue.Empty:
                lost = {i for i, worker in enumerate(workers) if worker.exitcode is not None} - ended
                if lost and tallies.empty():
                    raise NetworkError(
                        "a process of light clients ended by itself; is memory short?"
                    ) from None
                continue
            before, latest[number] = _sum(latest), tally
            now = _sum(latest)
            if now.connected > before.connected:
                connected = time.monotonic()
            if now.steps > before.steps:
                last = time.monotonic()
                first = last if before.steps == 0 else first
            if final:
                ended.add(number)
            progress(now)
    finally:
        stop.set()
        for worker in workers:
            worker.join(10)
            if worker.is_alive():
                worker.kill()
    return _report(len(identities), _sum(latest), connected - began, last - first)


def _work(
    address: str,
    identities: Sequence[Identity],
    prepared: Prepared,
    retry: float,
    number: int,
    tallies: Any,
    stop: Any,
) -> None:
    """A process of light clients."""
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    clients = LightClients(address, identities, prepared, retry=retry)
    found = clients.run(lambda tally: tallies.put((number, _brief(tally), False)), stop.is_set)
    tallies.put((number, found, True))


def _end_with_parent() -> None:
    """End this process when the one is killed that started it. Nobody would tell it to stop."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _brief(tally: Tally) -> Tally:
    """What there is to see on the way."""
    return Tally(tally.connected, tally.members, tally.ended, tally.steps, tally.up, tally.down)


def _sum(tallies: dict[int, Tally]) -> Tally:
    total = Tally()
    for tally in tallies.values():
        total.connected += tally.connected
        total.members += tally.members
        total.ended += tally.ended
        total.steps += tally.steps
        total.up += tally.up
        total.down += tally.down
        total.connect_seconds += tally.connect_seconds
        total.latencies += tally.latencies
        total.errors += tally.errors
    return total


def _report(clients: int, tally: Tally, connecting: float, seconds: float) -> LoadReport:
    latencies = sorted(tally.latencies)
    last = len(latencies) - 1
    moved = (tally.up + tally.down) / 1e6
    return LoadReport(
        clients=clients,
        connected=tally.connected,
        members=tally.members,
        connect_seconds=connecting,
        seconds=seconds,
        client_steps=tally.steps,
        client_steps_per_second=tally.steps / seconds if seconds else 0.0,
        up_bytes=tally.up,
        down_bytes=tally.down,
        megabytes_per_second=moved / seconds if seconds else 0.0,
        latency_seconds={
            "max" if p == 100 else f"p{p}": latencies[round(p / 100 * last)] for p in PERCENTILES if latencies
        },
        errors=dict(Counter(tally.errors).most_common()),
    )
