"""The examples of docs/examples run, where their packages are installed, and print what they should."""

import importlib.util
import re
import runpy
import warnings
from pathlib import Path

import pytest
import torch.multiprocessing as mp

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def run(name: str, capture: pytest.CaptureFixture[str], *needs: str) -> str:
    """What an example prints. It runs in this process, which has loaded PyTorch already."""
    for package in needs:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of other packages, as they are imported
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capture.readouterr().out


def test_ddp_hook(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(EXAMPLES / "ddp_hook.py"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Forked, so that the two need not load PyTorch again.
        mp.start_processes(
            example["main"], args=(2, str(tmp_path / "meeting")), nprocs=2, start_method="fork"
        )
    text = capfd.readouterr().out
    found = re.search(r"loss (\S+)\ngradients (\S+) times", text)
    assert found is not None, text
    assert float(found[1]) < 1.0, "four classes: guessing gives 1.39"
    assert float(found[2]) > 10
    assert "equal weights on all ranks: True" in text


def test_zarr(capsys: pytest.CaptureFixture[str]) -> None:
    text = run("zarr_features.py", capsys, "zarr", "numcodecs")
    found = re.search(r"Zarr 3: (\S+) times smaller\nrelative squared error (\S+)\n.* error (\S+)\n$", text)
    assert found is not None, text
    assert float(found[1]) > 7
    assert float(found[2]) < 0.05
    assert float(found[3]) < 0.02


def test_lightning(capsys: pytest.CaptureFixture[str]) -> None:
    text = run("lightning_split.py", capsys, "lightning")
    assert "accuracy above 0.8: True" in text
    found = re.search(r"callback: (\d+) bytes up instead of 16384", text)
    assert found is not None, text
    assert int(found[1]) < 4000


def test_trackio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    text = run("track_run.py", capsys, "trackio")
    assert re.search(r"steps: \d+", text), text
    assert list(tmp_path.rglob("cutlayer-example*"))
