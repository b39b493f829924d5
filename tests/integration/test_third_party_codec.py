"""A codec from another package: that of docs/tutorials/codec-of-your-own.md, installed by pip and used."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "sign-codec"
PAGE = ROOT / "docs" / "tutorials" / "codec-of-your-own.md"


def page_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def python(*arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run this interpreter, with `path` before the places where it finds modules now."""
    places = [str(path)] if path else []
    if os.environ.get("PYTHONPATH"):
        places.append(os.environ["PYTHONPATH"])
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory into which pip has installed the example."""
    work = tmp_path_factory.mktemp("third-party")
    # A copy, because building leaves files beside the sources.
    source = shutil.copytree(EXAMPLE, work / "source", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    target = work / "installed"
    pip = ["-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps", "--target", str(target)]
    # Without isolation the setuptools at hand builds it; with it, pip fetches one.
    for isolation in (["--no-build-isolation"], []):
        run = subprocess.run(
            [sys.executable, *pip, *isolation, str(source)],
            capture_output=True,
            encoding="utf-8",
            timeout=300,
        )
        if run.returncode == 0:
            return target
    pytest.skip(f"pip cannot build the example here: {run.stderr.strip()[-300:]}")


def test_the_page_shows_the_files_themselves() -> None:
    assert page_blocks("python")[0] == (EXAMPLE / "src" / "sign_codec.py").read_text("utf-8")
    assert page_blocks("toml") == [(EXAMPLE / "pyproject.toml").read_text("utf-8")]


def test_the_page_prints_what_it_says(installed: Path) -> None:
    run = python("-c", page_blocks("python")[1], path=installed)
    assert run.returncode == 0, run.stderr
    assert run.stdout == page_blocks("text")[0]  # the next one is of the notebook, which test_docs.py runs


USE = """
import sys, torch, cutlayer
from cutlayer.codecs import names
from cutlayer.errors import ParameterError, PayloadError

assert names()[-1] == "sign" and "ms" in names(), names()
for spec in ("sign", "sign:scope=sample"):
    codec = cutlayer.codec(spec)
    assert str(codec) == spec and cutlayer.codec(str(codec)) == codec
    for shape in ((), (1,), (9,), (4, 3, 5)):
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
            frame = codec.encode(x)
            info = cutlayer.inspect(frame)
            assert (info.codec, info.shape, info.dtype) == (spec, shape, dtype), info
            assert info.payload_bytes == codec.payload_bytes(shape)
            y = cutlayer.decode(frame)
            assert y.dtype == dtype and y.shape == x.shape
            rows = codec.sections(shape)
            mean = x.float().view(rows).abs().double().mean(1, keepdim=True).float()
            expected = torch.where(x.float().view(rows) < 0, -mean, mean)
            assert torch.equal(y, expected.view(shape).to(dtype))
            assert torch.equal(codec.decode(frame, out=torch.empty_like(x)), y)
layer = cutlayer.CutLayer(up=codec, down=codec)
layer(torch.randn(2, 8, requires_grad=True)).sum().backward()
assert layer.last_up.bytes == layer.last_down.bytes
try:
    cutlayer.codec("sign:scope=smaple")
except ParameterError as error:
    assert "did you mean 'sample'" in str(error), error
else:
    raise AssertionError("a wrong parameter passed")
sys.stdout.write(cutlayer.codec("sign").encode(torch.tensor([1.0, -2.0])).hex())
"""


def test_works_like_a_built_in_codec_and_is_missed_by_name(installed: Path) -> None:
    run = python("-c", USE, path=installed)
    assert run.returncode == 0, run.stderr
    without = python("-c", f"import cutlayer; cutlayer.decode(bytes.fromhex('{run.stdout}'))")
    assert without.returncode == 1
    message = without.stderr.strip().splitlines()[-1]
    assert message.startswith("cutlayer.errors.HeaderError: "), without.stderr
    assert "'sign'" in message
    assert "install the package" in message


EXPERIMENTS = """
import sys
from pathlib import Path
from cutlayer.reproduce import experiment
from cutlayer.reproduce.measurements import bias, bounds, error, speed
from cutlayer.training.progress_bar import progress_bar

request = experiment.Request(out=Path(sys.argv[1]))
for study in (error, bounds, bias, speed):
    keys = [cell.key for cell in study.cells(request)]
    assert any("sign" in key.split("/") for key in keys), (study.name, keys)
found = experiment.run(speed, request)
measured = [row for table in found.tables if table.id == "times" for row in table.rows if row[0] == "sign"]
assert len(measured) == 3 and all(row[3] > 0 and row[4] > 0 for row in measured), measured
bias.SIZES[request.scale] = (3, 8, 4)
bias.trained_models.CUTS = error.trained_models.CUTS = ("deep",)
for study in (error, bounds, bias):
    wanted = [cell for cell in study.cells(request) if cell.key.endswith("/sign")]
    study.prepare(request, progress_bar(quiet=True))
    for cell in wanted:
        record = cell.work(request, **cell.arguments)
        assert record.get("relative", record.get("error")) > 0, record
"""


def test_it_is_a_row_of_every_experiment(installed: Path, tmp_path: Path) -> None:
    run = python("-c", EXPERIMENTS, str(tmp_path), path=installed)
    assert run.returncode == 0, run.stderr


def test_gets_a_row_in_the_convergence_experiment_by_itself(installed: Path, tmp_path: Path) -> None:
    words = ["--cuts", "medium", "--policies", "none,sign", "--out", str(tmp_path), "--json"]
    run = python("-m", "cutlayer.cli", "reproduce", "convergence", *words, path=installed)
    assert run.returncode == 0, run.stderr
    table = json.loads(run.stdout)["tables"][0]
    rows, seeds = table["rows"], table["columns"].index("seeds")
    assert [[*row[:2], row[seeds]] for row in rows] == [["medium", "none", 1], ["medium", "sign", 1]]
    # One bit an element, and a little for headers.
    assert 20 < rows[1][table["columns"].index("smaller")] < 32
