"""Minutes of misfortune: kills, freezes, resets and damaged bytes, at random, on clients and server.

`make test` has a short form. `make chaos` takes as long as CHAOS_SECONDS says, with both policies.
"""

import os
import random
import signal
import sys
import time
from typing import Any

import pytest

from cutlayer.wire.security import certs

SECONDS = float(os.environ.get("CHAOS_SECONDS", "0"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))


class Chaos:
    """A cluster whose clients reach the server through a proxy, over TLS, and what can happen to it."""

    def __init__(self, cluster: Any, settings: list[str], flags: tuple[str, ...], proxy: Any) -> None:
        self.cluster, self.settings, self.proxy = cluster, settings, proxy
        folder = cluster.folder / "certs"
        certs.make_ca(folder)
        certs.make_server(folder, ["localhost", "127.0.0.1"])
        self.flags = (*flags, "--cert", "certs/server.pem", "--key", "certs/server.key")
        self.random = random.Random(SEED)
        self.done: list[str] = []
        self.calm = False
        self.server = cluster.serve(*settings, flags=self.flags)
        proxy.target_port = cluster.port
        self.clients = [self.join(number) for number in range(3)]

    def join(self, number: int) -> Any:
        # One of them is slow, so that the run does not end before the misfortunes do.
        slow = () if number or self.calm else ("--link", "1gbit,50ms")
        return self.cluster.join(number, "--ca", "certs/ca.pem", *slow, port=self.proxy.port)

    def end(self) -> None:
        """No more misfortunes, but for one: a fast client in the slow one's place."""
        self.calm = True
        self.clients[0].kill()
        self.clients[0] = self.join(0)

    def misfortune(self) -> None:
        what = self.random.choice(["client", "client", "freeze", "reset", "reset", "damage", "server"])
        victim = self.random.randrange(3)
        self.done.append(what)
        if what == "client":
            self.clients[victim].kill()
            self.clients[victim] = self.join(victim)
        elif what == "freeze":
            self.clients[victim].send(signal.SIGSTOP)
            time.sleep(self.random.uniform(0.1, 2))
            self.clients[victim].send(signal.SIGCONT)
        elif what == "reset":
            self.proxy.reset_all()
        elif what == "damage":
            self.proxy.corrupt(0.05)
            time.sleep(self.random.uniform(0.1, 1))
            self.proxy.corrupt(0)
        else:
            self.server.kill()
            self.server = self.cluster.serve(*self.settings, flags=(*self.flags, "--resume"))


@pytest.mark.parametrize("policy", ["wait", "drop"] if SECONDS else ["wait"])
def test_chaos(cluster, network, proxy_class, policy: str) -> None:
    epochs = 20 + int(SECONDS)
    settings = [f"train.epochs={epochs}", "train.checkpoint_every=5", "train.evaluate_every=10"]
    flags = ("--straggler", "drop", "--deadline", "4", "--quorum", "2") if policy == "drop" else ()
    with proxy_class(1, seed=SEED) as proxy:
        chaos = Chaos(cluster, settings, flags, proxy)
        end = time.monotonic() + SECONDS

        def progress() -> float:
            records = cluster.records()
            return records[-1]["epoch"] / epochs if records else 0.0

        network.until(lambda: progress() > 0, "a first step")
        while (SECONDS and time.monotonic() < end) or (not SECONDS and len(chaos.done) < 5):
            if progress() > 0.9:
                break
            chaos.misfortune()
            time.sleep(chaos.random.uniform(0.2, 2))
        print("misfortunes:", " ".join(chaos.done), file=sys.stderr)
        assert len(chaos.done) >= 5
        chaos.end()
        calm = 120 + 2 * SECONDS
        assert chaos.server.wait(calm) == 0, chaos.server.text
        for client in chaos.clients:
            assert client.wait() == 0, client.text
    steps = [r["global_step"] for r in cluster.records() if r["kind"] == "step"]
    assert steps == sorted(set(steps))
    assert len([r for r in cluster.records() if r["kind"] == "epoch"]) == epochs
    if policy == "wait":
        assert steps[-1] == len(steps)
        loop = cluster.train(*settings, patience=calm)
        assert network.plain(cluster.folder / "net") == network.plain(loop)
        network.same_weights(loop, cluster.folder / "net")
