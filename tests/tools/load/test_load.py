"""Light clients: against a real server in this process, and what the command says."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

from cutlayer.cli import app
from cutlayer.config.schema import Config
from cutlayer.errors import ConfigError, MessageError
from cutlayer.interrupt import Interrupt
from cutlayer.protocol.handshake import settings_for_clients
from cutlayer.tools.load.answers import LightClient
from cutlayer.tools.load.light_clients import LightClients
from cutlayer.tools.load.prepare import prepare
from cutlayer.training.serve import serve
from cutlayer.wire.grpc.server import Listening
from cutlayer.wire.messages.types import Ask, BeginStep, Combine, Evaluate, Share, Smashed
from cutlayer.wire.security.credentials import ClientSecurity

SETTINGS = ["train.clients=6", "train.batch_size=4", "train.epochs=1", "codec.up=qu:bits=4"]


@pytest.fixture
def offer(configure: Callable[..., Config]) -> SimpleNamespace:
    return SimpleNamespace(settings=settings_for_clients(configure(*SETTINGS)))


@pytest.fixture
def served(configure: Callable[..., Config]) -> Iterator[tuple[int, list[str]]]:
    """A server's port, and what it says of its run when that is over."""
    config = configure(*SETTINGS, "train.clients_per_step=2")
    port: list[int] = []
    listening = threading.Event()
    ended: list[str] = []

    def ready(found: int) -> None:
        port.append(found)
        listening.set()

    def run() -> None:
        torch.set_num_threads(1)
        with Interrupt() as interrupt:
            result = serve(config, Listening("127.0.0.1:0", ready=ready), interrupt=interrupt)
        ended.append(f"{result.steps} steps")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert listening.wait(60)
    yield port[0], ended
    thread.join(60)


def test_light_clients_complete_a_run_without_pytorch(served, tmp_path: Path) -> None:
    port, _ = served
    answered = CliRunner().invoke(
        app, ["load", f"127.0.0.1:{port}", "--clients", "6", "--steps", "3", "--json", "--processes", "1"]
    )
    assert answered.exit_code == 0, answered.output
    found = json.loads(answered.stdout)
    assert (found["clients"], found["connected"], found["members"]) == (6, 6, 6)
    assert found["client_steps"] == 3 * 2
    assert found["errors"] == {}
    assert 0 < found["latency_seconds"]["p50"] <= found["latency_seconds"]["max"]
    assert found["up_bytes"] > 6 * found["frame_bytes"] > 0


def test_the_processes_of_light_clients_do_not_load_pytorch() -> None:
    code = "import sys, cutlayer.tools.load.run; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_light_clients_end_with_the_process_that_started_them() -> None:
    code = """
import multiprocessing, time
from cutlayer.tools.load.run import _work
from cutlayer.wire.security.credentials import ClientSecurity
context = multiprocessing.get_context("spawn")
identities = [(ClientSecurity(), None)]
args = ("127.0.0.1:9", identities, None, 600.0, 0, context.Queue(), context.Event())
worker = context.Process(target=_work, args=args, daemon=True)
worker.start()
print(args[-2].get()[0], worker.pid, flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    _, pid = map(int, parent.stdout.readline().split())
    parent.kill()
    parent.wait()
    # The worker had this end of the pipe, too: it ends when the worker does.
    assert parent.stdout.read() == ""
    parent.stdout.close()
    with suppress(FileNotFoundError):
        assert "State:\tZ" in Path(f"/proc/{pid}/status").read_text()


def test_frames_have_the_size_that_was_asked_for(offer: SimpleNamespace) -> None:
    small, large = (prepare(offer, "digits", ".", steps=2, frame_bytes=n) for n in (100, 200))
    assert 80 < len(small.frame) < 120
    assert 170 < len(large.frame) < 230
    assert len(prepare(offer, "digits", ".", steps=2, up="dense").frame) > 1000
    with pytest.raises(ConfigError, match=r"1,\d+ bytes at most"):
        prepare(offer, "digits", ".", steps=2, frame_bytes=5000)


def test_what_light_clients_cannot_answer_is_an_error(offer: SimpleNamespace) -> None:
    client = LightClient(prepare(offer, "digits", ".", steps=2))
    assert len(client.answers(BeginStep(0, 0, 0, 0.1, Share.GRADIENTS))) == 2
    assert client.answers(Ask(0, Share.WEIGHTS))[0].size > 0
    for message in (Smashed(0, b""), Evaluate(0, 1, 2), Combine(0, b"", 0, 0, 0.1, False, 0)):
        with pytest.raises(MessageError):
            client.answers(message)
    u_shaped = json.loads(offer.settings)
    u_shaped["train"]["mode"], u_shaped["model"]["cut"] = "u-shaped", ["layer1", "fc"]
    with pytest.raises(ConfigError, match="no tail of a model"):
        prepare(SimpleNamespace(settings=json.dumps(u_shaped)), "digits", ".", steps=2)


def test_a_server_that_is_not_there_is_an_error_and_not_a_traceback() -> None:
    clients = LightClients("127.0.0.1:9", [(ClientSecurity(), None)] * 2, None, retry=0.0)  # type: ignore[arg-type]
    tally = clients.run(lambda tally: None, lambda: False)
    assert tally.ended == 2
    assert sum(tally.errors.values()) == 2


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--codec", "dense", "--frame-bytes", "9"], "leave out --codec"),
        (["--token-folder", "."], "has 0 .token files"),
    ],
)
def test_flags_that_do_not_fit(
    flags: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(app, ["load", "127.0.0.1:9", "--clients", "2", *flags])
    assert isinstance(found.exception, ConfigError)
    assert said in str(found.exception)


def test_plain_text_beyond_loopback_is_refused() -> None:
    found = CliRunner().invoke(app, ["load", "192.0.2.1:9", "--clients", "2", "--retry", "0"])
    assert "plain text" in str(found.exception)
