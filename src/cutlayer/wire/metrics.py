"""Numbers for Prometheus: what a server does, counted where it happens, scraped from loopback by default."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest, start_http_server

from cutlayer.errors import UnreachableError
from cutlayer.wire.meter import Direction, Kind


class Metrics:
    """The metrics of one process. Any thread may call. Each object has a registry of its own.

    No label carries a client's name: a thousand clients cost as little as one, and a scrape tells nobody
    who they are. Each client's traffic is in the run's records.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        make: dict[str, Any] = {"registry": self.registry, "namespace": "cutlayer"}
        self._steps = Counter("steps", "Training steps that are complete", **make)
        self._clients = Gauge("connected_clients", "Clients that are connected", **make)
        self._bytes = Counter(
            "bytes", "Serialized bytes by kind and direction", ["kind", "direction"], **make
        )
        self._stages = Counter("stage_seconds", "Seconds of work by stage", ["stage"], **make)
        self._queues = Gauge("queue_depth", "Messages that wait, by queue", ["queue"], **make)
        self._refusals = Counter("refusals", "Clients and requests refused, by reason", ["reason"], **make)
        self._requests = Counter("requests", "Inference requests answered", **make)
        self._samples = Counter("samples", "Samples inferred", **make)
        self._batches = Counter("batches", "Passes of the model for inference", **make)
        for kind in Kind:  # so that a rate over them begins at zero, not at the first message
            for direction in Direction:
                self._bytes.labels(kind, direction)
        self._server: tuple[WSGIServer, threading.Thread] | None = None

    def step(self, number: int = 1) -> None:
        """Count steps that are complete."""
        self._steps.inc(number)

    def sent(self, kind: Kind, direction: Direction, nbytes: int) -> None:
        """Count the bytes of a message."""
        self._bytes.labels(Kind(kind), Direction(direction)).inc(nbytes)

    def traffic(self, since: Mapping[str, int]) -> None:
        """Count what a meter has seen, as `Meter.since` gives it."""
        for key, nbytes in since.items():
            direction, slash, kind = key.partition("/")
            if slash and nbytes:
                self.sent(Kind(kind), Direction(direction), nbytes)

    def stage(self, name: str, seconds: float) -> None:
        """Add to the time that a stage (receive, decode, compute, encode, send) took."""
        self._stages.labels(name).inc(max(0.0, seconds))

    def queue(self, name: str, depth: int) -> None:
        """Say how many messages wait."""
        self._queues.labels(name).set(depth)

    def watch(self, connected: Callable[[], int], inbox: Callable[[], int]) -> None:
        """Ask these at each scrape, so that it tells how things are and not how they were."""
        self._clients.set_function(connected)
        self._queues.labels("inbox").set_function(inbox)

    def refused(self, reason: str) -> None:
        """Count a refusal. Reasons are few and fixed; what a stranger sent must not become a label."""
        self._refusals.labels(reason).inc()

    def inferred(self, requests: int, samples: int) -> None:
        """Count one pass of inference that answered so many requests."""
        self._requests.inc(requests)
        self._samples.inc(samples)
        self._batches.inc()

    def text(self) -> str:
        """What a scrape gets."""
        return generate_latest(self.registry).decode()

    def serve(self, port: int, host: str = "127.0.0.1") -> int:
        """Answer scrapes at http://HOST:PORT/metrics, on a thread of its own. Port 0 takes a free one."""
        try:
            self._server = start_http_server(port, host, self.registry)
        except OverflowError as error:
            raise UnreachableError(f"{port} is not a port for metrics; take one from 1 to 65535") from error
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            used = (
                "; choose another --metrics port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else ""
            )
            raise UnreachableError(f"cannot serve metrics on {host}:{port}: {why}{used}") from error
        return int(self._server[0].server_port)

    def close(self) -> None:
        """Stop answering."""
        if self._server is not None:
            server, thread = self._server
            server.shutdown()
            server.server_close()
            thread.join()
            self._server = None

    def __enter__(self) -> Metrics:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()
