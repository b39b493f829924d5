"""The examples of loops of their own, under Lightning and under the Trainer of transformers."""

import threading
from pathlib import Path

import pytest
import torch

from tests.load_file import load_file

FOLDER = Path(__file__).parents[2] / "docs" / "examples" / "remote-loop"
EXAMPLES = {
    "lightning_client": ("digits", ("lightning", "sklearn"), 0.85),
    "trainer_client": ("bert", ("transformers", "accelerate"), 0.9),
}


@pytest.mark.filterwarnings("ignore")  # what other packages do is their business
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_trains(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    kind, needed, accuracy = EXAMPLES[name]
    for package in needed:
        pytest.importorskip(package, reason=f"the example needs {package}, which is not installed")
    torch.manual_seed(0)
    server, client = (load_file(FOLDER / f"{file}.py") for file in ("server", name))
    port: list[int] = []
    listening = threading.Event()

    def ready(found: int) -> None:
        port.append(found)
        listening.set()

    thread = threading.Thread(target=server.main, args=(kind, "127.0.0.1:0", ready), daemon=True)
    thread.start()
    assert listening.wait(60)
    assert client.main(f"127.0.0.1:{port[0]}") > accuracy
    thread.join(60)
    assert not thread.is_alive()
    assert "update 25: loss" in capsys.readouterr().out
