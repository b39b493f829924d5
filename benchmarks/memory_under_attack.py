"""The server's peak memory while an admitted client attacks it, against an honest run, in one go.

    python benchmarks/memory_under_attack.py            print the figures
    python benchmarks/memory_under_attack.py --save     and write them to benchmarks/results

Each run is `cutlayer serve` with two honest `cutlayer join` and a third client, all processes of their own on
loopback but for the third, which speaks the protocol from here and sends what the attack says in place of its
first answer. Nothing here passes or fails; the bound is printed beside the figures.
"""

import argparse
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from cutlayer.client.participant import Participant
from cutlayer.codecs import codec
from cutlayer.training.provenance import provenance
from cutlayer.wire.grpc.connection import Connection
from cutlayer.wire.messages.base import Message, pack
from cutlayer.wire.messages.types import Labels, Smashed, unpack
from cutlayer.wire.security.credentials import ClientSecurity

RESULTS = Path(__file__).parent / "results" / "memory_under_attack.json"
MIB = 1 << 20
Attack = Callable[[int, Message], list[bytes] | None]


def wire(message: Message) -> bytes:
    """A message as it is sent."""
    return b"".join(pack(message))


def labels(size: int) -> Attack:
    """Labels of so many bytes, each of which claims to be many labels."""

    def attack(number: int, answer: Message) -> list[bytes] | None:
        return [wire(Labels(number, bytes(size), 8 * size))] if isinstance(answer, Labels) else None

    return attack


def unasked(size: int, times: int) -> Attack:
    """So many messages that nobody asked for."""
    return lambda number, answer: [wire(Smashed(number, bytes(size)))] * times


def bomb(number: int, answer: Message) -> list[bytes] | None:
    """A frame of some kilobytes that is a tensor of 800 MB."""
    if not isinstance(answer, Smashed):
        return None
    return [wire(Smashed(number, codec("sp:ratio=0.99999").encode(torch.ones(200_000_000))[:]))]


ATTACKS: dict[str, Attack] = {
    "honest": lambda number, answer: None,
    "labels of 32 MiB": labels(32 * MIB),
    "labels of 200 MiB": labels(200 * MIB),
    "six unasked messages of 200 MiB": unasked(200 * MIB, 6),
    "2,000 unasked messages of 64 kB": unasked(64_000, 2000),
    "a frame that claims 200 million elements": bomb,
}


def command(*words: object, **options: Any) -> subprocess.Popen[str]:
    """A command at work."""
    program = [sys.executable, "-m", "cutlayer", *map(str, words)]
    return subprocess.Popen(program, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, **options)


def peak(pid: int) -> float:
    """The most memory that a process ever had, in MiB."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    found = re.search(r"VmHWM:\s+(\d+)", status)
    return int(found[1]) / 1024 if found else 0.0  # it has just ended


def third(port: int, attack: Attack) -> None:
    """The third client: honest but for what the attack puts in place of its answers."""
    participant = Participant("digits", whole=True)
    events: queue.Queue[Any] = queue.Queue()
    connection = Connection(f"127.0.0.1:{port}", ClientSecurity(), claims=2, events=events, retry=3)
    while True:
        event = events.get()
        if event.kind in ("goodbye", "lost"):
            break
        if event.kind == "offer":
            connection.prepared(event, participant.prepare(event.content))
        elif event.kind == "welcome":
            participant.begin(event.content)
        else:
            asked = unpack(event.content)
            for answer in participant.handle(asked):
                for data in attack(asked.number, answer) or [wire(answer)]:
                    connection.send(event.conversation, (data,))
    connection.close()


def measure(attack: Attack) -> float:
    """The server's peak memory in a run of a few epochs with that third client."""
    with tempfile.TemporaryDirectory() as folder:
        settings = ["--clients", 3, "--epochs", 3, "--threads", 1, "--out", f"{folder}/run"]
        policy = ["--straggler", "drop", "--quorum", 2, "--listen", "127.0.0.1:0"]
        output = Path(folder) / "server.txt"
        with output.open("w") as stream:
            server = command("serve", *settings, *policy, stdout=stream, stderr=subprocess.STDOUT)
        while not (found := re.search(r"listening on 127.0.0.1:(\d+)", output.read_text())):
            time.sleep(0.05)
            assert server.poll() is None, output.read_text()
        port = int(found[1])
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        join = ["join", f"127.0.0.1:{port}", "--data", "digits", "--whole"]
        honest = [command(*join, "--as", number, **quiet) for number in (0, 1)]
        # Meanwhile, and not behind it: a server that has said goodbye may be gone at once.
        attacker = threading.Thread(target=third, args=(port, attack), daemon=True)
        attacker.start()
        most = 0.0
        while server.poll() is None:
            most = max(most, peak(server.pid))
            time.sleep(0.02)
        attacker.join(60)
        assert server.returncode == 0, output.read_text()
        assert [client.wait(60) for client in honest] == [0, 0]
    return most


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    arguments = parser.parse_args()
    figures: dict[str, float] = {}
    for name, attack in ATTACKS.items():
        figures[name] = measure(attack)
        bound = 1.3 * figures["honest"] + 256
        print(f"{name:45} {figures[name]:7.0f} MiB (bound {bound:.0f})", flush=True)
    if arguments.save:
        content = {"peak resident MiB of the server": figures, "bound": bound, "provenance": provenance(0)}
        RESULTS.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
