"""The program as a user meets it: a real process, its output and its exit code."""

import io
import json
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import cutlayer
from cutlayer import cli
from cutlayer.codecs import names


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def run(*arguments: object) -> Done:
    """The program in this process, since starting Python and torch takes seconds."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["cutlayer", *map(str, arguments)])
        try:
            cli.main()
        except SystemExit as exit:
            code = exit.code or 0
    return Done(code, out.getvalue(), err.getvalue())


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_as_a_real_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cutlayer.cli", "inspect", tmp_path / "none.cut"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"cutlayer: {tmp_path / 'none.cut'}: no such file\n"


def refused(*arguments: object) -> str:
    done = run(*arguments)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("cutlayer: ")
    return done.stderr


def test_help_teaches() -> None:
    assert "codecs" in run("--help").stdout
    for command in ("codecs", "encode", "decode", "inspect", "bench"):
        done = run(command, "--help")
        assert done.returncode == 0
        assert "Example" in done.stdout


def test_codecs_lists_all() -> None:
    listed = json.loads(run("codecs", "--json").stdout)
    assert [row["name"] for row in listed] == names()
    ms = next(row for row in listed if row["name"] == "ms")
    assert ms["parameters"]["bits"]["default"] == 2
    assert ms["parameters"]["bits"]["allowed"] == "an integer from 1 to 16"
    assert "rounding" in run("codecs", "ms").stdout
    assert "did you mean 'sp'" in refused("codecs", "spp")


def test_npy_there_and_back(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((5, 6, 7)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    done = run("encode", tmp_path / "x.npy", tmp_path / "x.cut", "--codec", "ms:ratio=0.9,bits=3")
    assert done.returncode == 0, done.stderr
    assert "times smaller" in done.stdout
    assert json.loads(run("inspect", tmp_path / "x.cut", "--json").stdout)["codec"] == "ms:ratio=0.9,bits=3"
    assert "payload bytes" in run("inspect", tmp_path / "x.cut").stdout
    assert run("decode", tmp_path / "x.cut", tmp_path / "y.npy").returncode == 0
    expected = cutlayer.decode(cutlayer.codec("ms:ratio=0.9,bits=3").encode(x))
    assert np.array_equal(np.load(tmp_path / "y.npy"), expected.numpy())


def test_inspect_shows_the_header_of_a_frame_whose_codec_is_unknown(tmp_path: Path) -> None:
    frame = bytearray(cutlayer.codec("dense").encode(torch.zeros(2, 3)))
    frame[9] = 200
    frame[4:8] = zlib.crc32(frame[8:]).to_bytes(4, "little")
    (tmp_path / "x.cut").write_bytes(frame)
    shown = json.loads(run("inspect", tmp_path / "x.cut", "--json").stdout)
    assert shown["codec"] == "codec number 200 (unknown here)"
    assert shown["shape"] == [2, 3]
    assert "codec number 200" in refused("decode", tmp_path / "x.cut", tmp_path / "y.npy")


def test_safetensors_there_and_back(tmp_path: Path) -> None:
    save_file({"a": torch.ones(3), "b": torch.randn(4, 5).bfloat16()}, tmp_path / "x.safetensors")
    assert "a, b" in refused("encode", tmp_path / "x.safetensors", tmp_path / "x.cut")
    assert not (tmp_path / "x.cut").exists()
    assert run("encode", tmp_path / "x.safetensors", tmp_path / "x.cut", "--tensor", "b").returncode == 0
    assert "bfloat16" in refused("decode", tmp_path / "x.cut", tmp_path / "y.npy")
    assert run("decode", tmp_path / "x.cut", tmp_path / "y.safetensors").returncode == 0


def test_mistakes_get_one_line(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3, np.float32))
    np.save(tmp_path / "ints.npy", np.zeros(3, int))
    np.save(tmp_path / "nan.npy", np.array([np.nan], np.float32))
    (tmp_path / "junk.cut").write_bytes(b"junk")
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY broken")
    assert "no such file" in refused("encode", tmp_path / "none.npy", tmp_path / "o.cut")
    assert "ends in" in refused("encode", tmp_path / "junk.cut", tmp_path / "o.cut")
    assert "not a readable" in refused("encode", tmp_path / "broken.npy", tmp_path / "o.cut")
    assert "int64" in refused("encode", tmp_path / "ints.npy", tmp_path / "o.cut")
    assert "NaN" in refused("encode", tmp_path / "nan.npy", tmp_path / "o.cut")
    assert "start with" in refused("decode", tmp_path / "junk.cut", tmp_path / "o.npy")
    assert "did you mean" in refused("encode", tmp_path / "x.npy", tmp_path / "o.cut", "--codec", "ms:bit=2")
    assert "exists" in refused("encode", tmp_path / "x.npy", tmp_path / "junk.cut")
    assert (tmp_path / "junk.cut").read_bytes() == b"junk"
    assert "cannot be written" in refused("encode", tmp_path / "x.npy", tmp_path / "no" / "dir.cut")
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "broken.npy",
        "ints.npy",
        "junk.cut",
        "nan.npy",
        "x.npy",
    ]
    assert run("encode", tmp_path / "x.npy", tmp_path / "junk.cut", "--force").returncode == 0


@pytest.mark.parametrize("machine", [True, False])
def test_bench(tmp_path: Path, machine: bool) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((20, 500), np.float32))
    arguments = ["bench", "--input", tmp_path / "x.npy", "--codec", "ms", "--codec", "dense", "--seconds", 0]
    done = run(*arguments, *(["--json"] if machine else []))
    assert done.returncode == 0, done.stderr
    if not machine:
        assert "ms:ratio=0.99,bits=2" in done.stdout
        return
    measured = json.loads(done.stdout)
    ms, dense = measured["codecs"]
    assert measured["shape"] == [20, 500]
    assert dense["error"] == 0
    assert dense["cosine"] == pytest.approx(1)
    assert ms["bytes"] == len(cutlayer.codec("ms").encode(np.load(tmp_path / "x.npy")))
    assert 0 < ms["error"] < 1
    assert ms["encode_gbps"] > 0


def test_bench_on_its_own_feature_map() -> None:
    measured = json.loads(run("bench", "--codec", "ms", "--seconds", 0, "--json").stdout)
    assert measured["shape"][0] == 1438
    assert 0 < measured["codecs"][0]["error"] < 0.5


def test_a_file_that_is_no_frame_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.cut"
    path.write_text("these are no tensors")
    for words in (("decode", path, tmp_path / "x.npy"), ("inspect", path)):
        assert f"{path}: these bytes start with" in refused(*words)


def test_defaults_are_those_that_a_codec_has() -> None:
    for row in json.loads(run("codecs", "--json").stdout):
        made = cutlayer.codec(row["name"])
        assert {k: p["default"] for k, p in row["parameters"].items()} == {
            k: getattr(made, k) for k in row["parameters"]
        }
    assert "bpe         1.0" in run("codecs", "ems").stdout
