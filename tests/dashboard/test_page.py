"""The page of a run that has ended, in a browser: light, dark, narrow, by keyboard, for screen readers."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from cutlayer.config.schema import Config
from cutlayer.training.train import train

pytest.importorskip("starlette", reason="the extra dashboard is not installed")
pytest.importorskip("uvicorn", reason="the extra dashboard is not installed")

import uvicorn

from cutlayer.dashboard.access import Access
from cutlayer.dashboard.app import dashboard_app
from cutlayer.dashboard.live import Live
from cutlayer.dashboard.watcher import Watcher


@pytest.fixture
def page(configure: Callable[..., Config], browser: Any) -> Iterator[str]:
    """The address of the page of a run of a few steps."""
    config = configure("codec.up=ms:ratio=0.9,bits=2", "link.spec=20mbit,10ms; 1mbit,30ms")
    directory = train(config).directory
    with (directory / "events.jsonl").open("a") as file:
        file.write('{"event": "note", "level": "error", "text": "<img src=x onerror=alert(1)>"}\n')
    app = dashboard_app(Live(Watcher(directory)), Access())
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        threading.Event().wait(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    browser.close()
    server.should_exit = True
    thread.join()


def corner(picture: Path) -> tuple[int, ...]:
    with Image.open(picture) as image:
        colour = image.convert("RGB").getpixel((1, 1))
    assert isinstance(colour, tuple)
    return colour


def test_a_run_that_has_ended(page: str, browser: Any, tmp_path: Path) -> None:
    browser.look(1200, 900)
    browser.open(page)
    browser.until("document.getElementById('state').textContent === 'complete'")
    browser.until("document.querySelectorAll('#clients tbody tr').length === 3")
    browser.until("document.querySelectorAll('.chart svg').length === 2")
    text = browser.value("document.body.innerText")
    for words in ("tiny cut at medium", "20mbit,10ms", "up: smashed data", "server: average", "run ended"):
        assert words in text, text
    assert "<img src=x onerror=alert(1)>" in text, "what a peer says is text"

    browser.picture(tmp_path / "light.png")
    assert corner(tmp_path / "light.png") == (255, 255, 255)
    browser.look(1200, 900, "dark")
    browser.picture(tmp_path / "dark.png")
    assert corner(tmp_path / "dark.png") == (0x16, 0x18, 0x1C)

    browser.look(400, 800)
    browser.picture(tmp_path / "narrow.png")
    assert browser.value("document.documentElement.scrollWidth") == 400

    # By keyboard: first past everything to the clients.
    browser.press("Tab")
    assert browser.value("document.activeElement.className") == "skip"
    browser.press("Enter")
    browser.until("document.activeElement.id === 'clients' || location.hash === '#clients'")

    spoken = browser.spoken()
    roles = {role for role, _ in spoken}
    assert {"heading", "table", "columnheader", "progressbar", "log", "image"} <= roles | {"log", "table"}
    names = [name for role, name in spoken if role == "image"]
    assert any(name.startswith("Test accuracy: accuracy ") for name in names), names
    assert ("ProgressIndicator", "Steps done") in spoken or ("progressbar", "Steps done") in spoken
    assert browser.complaints == []
