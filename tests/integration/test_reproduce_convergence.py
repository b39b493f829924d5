"""`cutlayer reproduce convergence` as people use it: killed, continued, several runs at once, reported."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cutlayer.cli import app
from cutlayer.errors import CutlayerError, FileError
from cutlayer.training.records import RecordWriter, read

PROGRAM = [sys.executable, "-W", "error", "-m", "cutlayer.cli"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}


def cutlayer(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *map(str, words)], env=ENVIRONMENT, capture_output=True, encoding="utf-8", timeout=180
    )


def invoke(*words: object) -> Result:
    """In this process: what is not about processes need not start one."""
    return CliRunner().invoke(app, [str(word) for word in words])


def held(path: Path) -> bool:
    """Whether a process is training the run."""
    try:
        RecordWriter(path).close()
    except FileError:
        return True
    return False


def plain(directory: Path) -> list[dict[str, Any]]:
    timed = ("seconds", "simulated_seconds")
    return [{k: v for k, v in r.items() if k not in timed} for r in read(directory / "records.jsonl")]


def epochs(directory: Path) -> list[dict[str, Any]]:
    return [record for record in plain(directory) if record["kind"] == "epoch"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All policies at all cuts, in one process."""
    out = tmp_path_factory.mktemp("whole")
    done = cutlayer("reproduce", "convergence", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "39 runs" in done.stderr
    return out


def test_killed_and_continued_with_two_jobs_gives_the_same(whole: Path, tmp_path: Path) -> None:
    words = ["reproduce", "convergence", "--out", tmp_path, "--cuts", "shallow", "--policies", "none,ms"]
    runs = tmp_path / "convergence" / "runs"
    command = [*PROGRAM, *map(str, [*words, "--jobs", 2])]
    deadline = time.monotonic() + 120
    with subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and time.monotonic() < deadline:
            sizes = [path.stat().st_size for path in runs.glob("*/records.jsonl")]
            if len(sizes) == 2 and max(sizes) > 3000:  # both hold their lock by now
                break
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    # The runs notice at their next step that nobody listens; until then they hold the lock.
    while any(held(path) for path in runs.glob("*/records.jsonl")):
        assert time.monotonic() < deadline, "the runs outlive their master"
        time.sleep(0.05)
    done = invoke(*words)
    assert done.exit_code == 0, done.output
    for name in ("shallow-none-s0", "shallow-ms-s0"):
        assert epochs(runs / name) == epochs(whole / "convergence" / "runs" / name)
        assert not (runs / name / "checkpoints").exists()


def test_terminated_in_between_it_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    words = ["reproduce", "convergence", "--out", tmp_path, "--cuts", "deep", "--policies", "none,sp"]
    runs = tmp_path / "convergence" / "runs"
    command = [*PROGRAM, *map(str, [*words, "--jobs", 2])]
    with subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, encoding="utf-8") as process:
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            if any(path.stat().st_size for path in runs.glob("*/records.jsonl")):
                break
            time.sleep(0.005)
        process.terminate()
        _, told = process.communicate(timeout=120)
    if process.returncode != 0:  # a fast machine may have finished before
        assert process.returncode == 130
        assert "the same command goes on from there" in told
        assert "Traceback" not in told


def test_results_traffic_and_report_follow_from_the_runs(whole: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in whole.glob("convergence/runs/*/records.jsonl")}
    done = invoke("reproduce", "traffic", "--out", whole, "--json")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert {path: path.read_bytes() for path in before} == before, "nothing was trained again"
    assert [table["id"] for table in result["tables"]][:2] == ["smashed", "all-traffic"]
    assert len(result["tables"][0]["rows"]) == 18
    assert result["commands"] == [f"cutlayer reproduce convergence --out {whole.name}"]
    for name in ("convergence", "traffic"):
        assert (whole / name / "tables.md").stat().st_size
    page = tmp_path / "report.html"
    done = invoke("report", whole, whole / "convergence" / "runs", "--out", page)
    assert done.exit_code == 0, done.output
    text = page.read_text()
    for part in ("Fig. 3", "Table 1", "deep-ms-nearest-s0", "13.11x", "provenance"):
        assert part.lower() in text.lower(), part


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--seeds", "one"], "--seeds 'one': expected whole numbers"),
        (["--policies", "mss"], "no policy 'mss'"),
        (["--codec", "ms:ratio=2"], "ratio"),
        (["--scale", "laptop", "--root", "nowhere"], "cifar10 is not under"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, words: list[str], told: str) -> None:
    error = invoke("reproduce", "convergence", "--out", tmp_path, *words).exception
    assert isinstance(error, CutlayerError)
    assert told in str(error)
