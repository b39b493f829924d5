"""The short form of `make fuzz`: a fixed number of damaged frames in a process of their own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cutlayer.codecs.kernels import dispatch as kernels

HERE = Path(__file__).parent


def run(script: str, *arguments: str) -> list[dict[str, int]]:
    done = subprocess.run(
        [sys.executable, HERE / script, *arguments],
        capture_output=True,
        text=True,
        timeout=500,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(("implementation", "frames"), [("native", 30_000), ("reference", 2_000)])
def test_only_named_errors(implementation: str, frames: int) -> None:
    if implementation not in kernels.available():
        pytest.skip("no compiled kernels were built")
    (seen,) = run("run.py", "--frames", str(frames), "--implementation", implementation)
    assert seen["frames"] == frames
    # The damage reaches every depth: header, sizes, payloads, and sometimes it is none.
    for outcome in (
        "HeaderError",
        "PayloadError",
        "ChecksumError",
        "LimitError",
        "TruncatedFrameError",
        "decoded",
    ):
        assert seen[outcome] > frames // 1000, seen


@pytest.mark.skipif(not shutil.which("c++"), reason="no C++ compiler")
def test_under_sanitizers() -> None:
    seen = run("sanitized.py", "--frames", "6000")
    assert (seen[-1]["frames"], seen[-1]["sanitizer_reports"]) == (6000, 0)
    assert "generic" in seen[-1]["sets"]
