"""A loop of the client's own survives broken connections and a server that is killed: to the bit."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import cutlayer

SERVER = """
import os, signal, sys
import torch
from torch import nn
from torch.nn import functional as F
import cutlayer

torch.set_num_threads(1)

def serve(kind, folder, port, dies):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 8), nn.Dropout(0.2), nn.Linear(8, 3))
    part = model[2:4] if kind == "u" else model[2:]
    optimizer = torch.optim.AdamW(part.parameters(), lr=0.01)
    server = cutlayer.RemoteServer(
        part, f"127.0.0.1:{port}", loss=F.cross_entropy, optimizer=optimizer, checkpoint=folder,
        ready=lambda found: print(found, flush=True),
    )
    for step in server:
        optimizer.step()
        optimizer.zero_grad()
        if step.update == dies:
            os.kill(os.getpid(), signal.SIGKILL)  # updated, but neither saved nor answered yet
    torch.save([p.detach() for p in part.parameters()], folder + ".pt")
    os._exit(0)

# Forked, so that PyTorch is loaded once. A server that was killed is started again on its port.
for line in sys.stdin:
    kind, folder, port = line.split()
    for dies in (3, 0):
        pid = os.fork()
        if not pid:
            serve(kind, folder, port, dies)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(code, flush=True)
"""


def loop(remote: cutlayer.Remote, kind: str, disturb: Any = lambda step: None) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 8), nn.Dropout(0.2), nn.Linear(8, 3))
    head, tail = model[:2], model[4:] if kind == "u" else nn.Identity()
    optimizer = torch.optim.AdamW([*head.parameters(), *tail.parameters()], lr=0.01)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for step in range(6):
        x = torch.randn(8, 10, generator=generator)
        y = torch.randint(3, (8,), generator=generator)
        disturb(step)
        loss = F.cross_entropy(tail(remote(head(x))), y) if kind == "u" else remote(head(x), y)
        disturb(step + 0.5)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def calm(kind: str, proxy_class: Any, resets: bool = False) -> tuple[list[float], list[torch.Tensor], int]:
    """Losses, weights and connections, with a server in a thread; with `resets`, connections break."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 8), nn.Dropout(0.2), nn.Linear(8, 3))
    part = model[2:4] if kind == "u" else model[2:]
    port: list[int] = []
    listening = threading.Event()
    server = cutlayer.RemoteServer(
        part,
        "127.0.0.1:0",
        loss=F.cross_entropy,
        optimizer=torch.optim.AdamW(part.parameters(), lr=0.01),
        ready=lambda found: (port.append(found), listening.set()),
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert listening.wait(30)
    with proxy_class(port[0]) as proxy:

        def disturb(step: float) -> None:
            if resets and step in (1, 2.5, 4):
                proxy.reset_all()

        with cutlayer.connect(f"127.0.0.1:{proxy.port}", retry=60) as remote:
            losses = loop(remote, kind, disturb)
        accepted = proxy.accepted
        thread.join(30)
    assert not thread.is_alive()
    return losses, [p.detach() for p in part.parameters()], accepted


@pytest.fixture(scope="module")
def servers() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    yield process
    process.communicate(timeout=60)


@pytest.mark.parametrize("kind", ["loss", "u"])
def test_a_server_that_is_killed_goes_on_from_its_checkpoint(
    tmp_path: Path, servers: subprocess.Popen[str], proxy_class: Any, kind: str
) -> None:
    assert servers.stdin is not None
    assert servers.stdout is not None
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    servers.stdin.write(f"{kind} {tmp_path / 'state'} {port}\n")
    servers.stdin.flush()
    assert int(servers.stdout.readline()) == port
    with cutlayer.connect(f"127.0.0.1:{port}", retry=60) as remote:
        losses = loop(remote, kind)
    said = [int(servers.stdout.readline()) for _ in range(3)]
    assert said == [-signal.SIGKILL, port, 0]
    expected = calm(kind, proxy_class)
    assert losses == expected[0]
    weights = torch.load(tmp_path / "state.pt")
    assert all(torch.equal(a, b) for a, b in zip(weights, expected[1], strict=True))


@pytest.mark.parametrize("kind", ["loss", "u"])
def test_broken_connections_change_nothing(proxy_class: Any, kind: str) -> None:
    whole, broken = calm(kind, proxy_class), calm(kind, proxy_class, resets=True)
    assert broken[2] >= whole[2] + 3
    assert broken[0] == whole[0]
    assert all(torch.equal(a, b) for a, b in zip(broken[1], whole[1], strict=True))
