"""Ranks under a real torchrun that are killed again and again, and on two machines whose link is cut.

`make chaos` runs these. The two machines are network namespaces, so that test needs the right to make them.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port

SECONDS = float(os.environ.get("CHAOS_SECONDS", "0"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))
KILLS = 10
SETTINGS = ("train.clients=4", "train.epochs=60", "train.checkpoint_every=5", "train.evaluate_every=10")

pytestmark = pytest.mark.skipif(not SECONDS, reason="takes minutes: make chaos")


def started(output: Path, *command: str, **env: str) -> subprocess.Popen[bytes]:
    """A process in the folder of its output, in a session of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", **env}
    with output.open("w") as file:
        return subprocess.Popen(
            command,
            cwd=output.parent,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


class Torchrun:
    """torchrun with `cutlayer serve`, in a network namespace if one is given."""

    def __init__(
        self, network: Any, folder: Path, *flags: str, listen: str, out: str, namespace: str = "", **env: str
    ) -> None:
        inside = ("ip", "netns", "exec", namespace) if namespace else ()
        given = [part for setting in (*network.SETTINGS, *SETTINGS) for part in ("--set", setting)]
        settings = folder / "run.toml"
        settings.write_text("")
        serve = (
            "serve",
            str(settings),
            *given,
            "--out",
            out,
            "--listen",
            listen,
            "--threads",
            "1",
            "--exact",
            "--resume",
        )
        self.output = folder / f"torchrun-{namespace or 'here'}.txt"
        command = (sys.executable, "-m", "torch.distributed.run", "--max-restarts", "100", *flags)
        program = ("-m", "cutlayer", *serve, "--insecure")
        self.process = started(self.output, *inside, *command, *program, **env)

    def ranks(self) -> list[int]:
        """The process ids of its ranks at the moment."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                about = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_text()
            except (OSError, IndexError):
                continue
            if int(about[1]) == self.process.pid and "cutlayer\0serve" in command:
                found.append(int(entry.name))
        return sorted(found)

    def kill_a_rank(self, chance: random.Random, until: Any) -> None:
        """Kill one, as soon as there is one."""
        os.kill(chance.choice(until(self.ranks, "a rank")), signal.SIGKILL)

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(40)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()


def progress(cluster: Any, out: str = "net") -> int:
    return len(cluster.records(out))


def test_ten_random_kills_of_ranks_and_clients(cluster: Any, network: Any) -> None:
    port, chance = free_port(), random.Random(SEED)

    def join(client: int) -> Any:
        # One is slow until the kills are over, so that the run does not end before.
        slow = () if client or len(done) == KILLS else ("--link", "1gbit,50ms")
        return cluster.join(client, *slow, port=port + chance.randrange(2))

    done: list[str] = []
    listen = f"127.0.0.1:{port}"
    server = Torchrun(network, cluster.folder, "--nproc-per-node", "2", listen=listen, out="net")
    try:
        clients = [join(client) for client in range(4)]
        while len(done) < KILLS:
            begun = progress(cluster)
            network.until(lambda begun=begun: progress(cluster) != begun, "a step", 300)
            time.sleep(chance.uniform(0, 2))
            victim = chance.randrange(6)
            done.append("rank" if victim > 3 else f"client {victim}")
            if victim > 3:
                server.kill_a_rank(chance, network.until)
            else:
                clients[victim].kill()
                clients[victim] = join(victim)
        print("killed:", ", ".join(done), file=sys.stderr)
        clients[0].kill()
        clients[0] = join(0)
        assert server.process.wait(600) == 0, server.output.read_text()
        for client in clients:
            assert client.wait() == 0, client.text
    finally:
        server.end()
    loop = cluster.train(*SETTINGS)
    network.same_weights(loop, cluster.folder / "net")
    assert network.plain(cluster.folder / "net") == network.plain(loop)


class Machines:
    """Network namespaces on one switch: `a` and `b` for ranks, `c` for clients."""

    def __init__(self) -> None:
        self.names = {one: f"cutlayer-{os.getpid()}-{one}" for one in ("switch", "a", "b", "c")}
        self.addresses = {"a": "10.99.0.1", "b": "10.99.0.2", "c": "10.99.0.3"}

    def make(self) -> None:
        switch = self.names["switch"]
        for name in self.names.values():
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "link", "set", "br0", "up")
        for one, address in self.addresses.items():
            name = self.names[one]
            ip("-n", switch, "link", "add", f"to-{one}", "type", "veth", "peer", "eth0", "netns", name)
            ip("-n", switch, "link", "set", f"to-{one}", "master", "br0", "up")
            ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")

    def cut(self, one: str, seconds: float) -> None:
        ip("-n", self.names["switch"], "link", "set", f"to-{one}", "down")
        time.sleep(seconds)
        ip("-n", self.names["switch"], "link", "set", f"to-{one}", "up")

    def remove(self) -> None:
        for name in self.names.values():
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@pytest.fixture
def machines() -> Iterator[Machines]:
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip`, which makes network namespaces")
    found = Machines()
    try:
        try:
            found.make()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces cannot be made here: {error.stderr.strip()}")
        yield found
    finally:
        found.remove()


def test_two_machines_with_a_link_that_is_cut_and_a_rank_that_is_killed(
    cluster: Any, network: Any, machines: Machines
) -> None:
    chance = random.Random(SEED)
    servers = [
        Torchrun(
            network,
            cluster.folder,
            *("--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", "test"),
            *("--rdzv-endpoint", f"{machines.addresses['a']}:29400", "--local-addr", machines.addresses[one]),
            # Nobody resolves names in a namespace, by which torchrun would find out.
            *("--rdzv-conf", f"is_host={int(one == 'a')}"),
            listen=f"{machines.addresses[one]}:50551",
            # Machines have no disk in common.
            out=f"net-{one}",
            namespace=machines.names[one],
            GLOO_SOCKET_IFNAME="eth0",
        )
        for one in ("a", "b")
    ]
    call = ("ip", "netns", "exec", machines.names["c"], sys.executable, "-m", "cutlayer", "join")
    where = f"{machines.addresses['a']}:50551"
    args = (where, "--data", "digits", "--whole", "--threads", "1", "--insecure")
    clients = [
        started(cluster.folder / f"client-{client}.txt", *call, *args, "--as", str(client))
        for client in range(4)
    ]

    def total() -> int:
        for server in servers:
            assert server.process.poll() is None, server.output.read_text()
        return progress(cluster, "net-a") + progress(cluster, "net-b")

    try:
        network.until(lambda: total() > 5, "some steps", 300)
        machines.cut("b", 10)
        begun = total()
        network.until(lambda: total() > begun + 5, "steps after the cut", 300)
        servers[1].kill_a_rank(chance, network.until)
        for server in servers:
            assert server.process.wait(600) == 0, server.output.read_text()
        for client in clients:
            assert client.wait(60) == 0
    finally:
        for path in sorted(cluster.folder.glob("*.txt")):
            print(f"--- {path.name}\n{path.read_text()[-3000:]}")
        for client in clients:
            client.kill()
            client.wait()
        for server in servers:
            server.end()
    loop = cluster.train(*SETTINGS)
    ended = [out for out in ("net-a", "net-b") if progress(cluster, out) == progress(cluster, "loop")]
    assert ended
    network.same_weights(loop, cluster.folder / ended[0])
