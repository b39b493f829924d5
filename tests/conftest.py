"""For all tests."""

import asyncio
import importlib
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

from cutlayer.config.schema import Config, load
from cutlayer.inference.server import Serving, running
from cutlayer.training.load_run import open_run
from cutlayer.training.local_run import LocalRun, local_run
from tests.load_file import load_file

# Timing never decides a test: an example that a busy machine holds up is no failure.
settings.register_profile("calm", deadline=None)
settings.load_profile("calm")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Runs are compared to the bit, and sums over several threads need not be the same twice."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def raw() -> Iterator[Any]:
    """`raw_http2`, for tests, which cannot import it. Its connections are closed at the end."""
    module = load_file(Path(__file__).with_name("raw_http2.py"))
    yield module
    for connection in module.opened:
        connection.close()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    """A headless Chromium with one page; without one, the test is skipped."""
    module = load_file(Path(__file__).with_name("browser.py"))
    if module.BROWSER is None:
        pytest.skip("there is no Chromium here; apt-get install chromium")
    found = module.Browser(tmp_path / "profile")
    yield found
    found.close()


PLAIN = '''
from torch import nn

def net(classes, in_channels):
    """No batch norm, so that one big batch is the same as many small ones."""
    return nn.Sequential(
        nn.Conv2d(in_channels, 4, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(4, 6, 3, stride=2),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(54, 16),
        nn.ReLU(),
        nn.Linear(16, classes),
    )

def dropping(classes, in_channels):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(), nn.Linear(32, 32), nn.ReLU(), nn.Dropout(),
        nn.Linear(32, classes),
    )
'''


@pytest.fixture
def plain_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A user's own models without batch norm, importable as `plain_nets`."""
    (tmp_path / "plain_nets.py").write_text(PLAIN)
    monkeypatch.syspath_prepend(tmp_path)
    return "plain_nets:net"


@pytest.fixture
def served() -> Callable[..., AbstractContextManager[tuple[str, Any]]]:
    """An inference server of a trained model in a thread: its address, and itself."""

    @contextmanager
    def serve(trained: Any, **settings: Any) -> Iterator[tuple[str, Any]]:
        loop = asyncio.new_event_loop()
        model = open_run(trained) if isinstance(trained, Path) else trained
        server = running(model, Serving("127.0.0.1:0", **settings))
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            port = asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(60)
            try:
                yield f"127.0.0.1:{port}", server
            finally:
                asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result(60)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    return serve


@pytest.fixture
def several_nets_file() -> Path:
    """The file with models whose cuts carry several tensors."""
    return Path(__file__).with_name("several_nets.py")


@pytest.fixture
def several_nets(several_nets_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The same models as a module, which runs can import, too."""
    shutil.copy(several_nets_file, tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    # A module of the same name, of another test's folder.
    monkeypatch.delitem(sys.modules, "several_nets", raising=False)
    return importlib.import_module("several_nets")


@pytest.fixture
def configure(tmp_path: Path) -> Callable[..., Config]:
    """Settings for a run of seconds, with overrides."""

    def make(*overrides: str) -> Config:
        common = [
            f"output.dir={tmp_path / 'run'}",
            "output.tensorboard=false",
            "codec.up=none",
            "model.width=4",
            "data.limit=200",
            "train.clients=3",
            "train.epochs=2",
            "train.batch_size=8",
            "train.lr=0.05",
        ]
        return load(None, [*common, *overrides])

    return make


@pytest.fixture
def start(configure: Callable[..., Config]) -> Callable[..., LocalRun]:
    """A run in one process on such settings."""
    return lambda *overrides: local_run(configure(*overrides))


@pytest.fixture
def resumes_exactly(start: Callable[..., LocalRun]) -> Callable[[list[str], int], None]:
    """Whether a run that is interrupted after some steps sends and learns what it would have without."""

    def check(settings: list[str], steps: int) -> None:
        whole, first, second = (start(*settings) for _ in range(3))
        results = [whole.step() for _ in range(whole.server.plan.total)]
        for _ in range(steps):
            first.step()
        second.restore(*first.state())
        rest = [second.step() for _ in range(steps, whole.server.plan.total)]
        assert [(o.bits, o.losses) for o in rest] == [(o.bits, o.losses) for o in results[steps:]]

    return check
