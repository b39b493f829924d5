"""The doctor says what is missing, and what to do about it."""

import json
import socket
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cutlayer.cli import app
from cutlayer.tools import doctor
from cutlayer.tools.doctor import EXTRAS, Finding, examine


def found(name: str) -> Finding:
    return next(finding for finding in examine() if finding.what == name)


def test_what_is_installed_is_in_order() -> None:
    assert found("cutlayer").verdict == "ok"
    assert found("torch").found == metadata.version("torch")
    assert found("extra train") == Finding("extra train", "installed")
    assert found("instruction set").found in ("avx512", "avx2", "neon", "generic")


def test_extras_are_those_of_the_package() -> None:
    project = Path(__file__).parents[2] / "pyproject.toml"
    text = project.read_text()
    assert all(f"\n{extra} = [" in text for extra in EXTRAS)


def test_a_device_without_pytorch_is_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    there, version = doctor._there, doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "torch" else version(name))
    monkeypatch.setattr(doctor, "_there", lambda name: name != "pydantic" and there(name))
    assert found("torch").verdict == "note"
    assert "cutlayer[train]" in found("torch").advice
    assert found("extra train").verdict == "note"


def test_a_missing_extra_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_there", lambda module: module not in ("grpc", "starlette", "uvicorn"))
    assert found("extra network") == Finding(
        "extra network", "without grpc", "problem", "pip install 'cutlayer[network]'"
    )
    assert found("extra dashboard").found == "not installed"
    assert found("extra dashboard").verdict == "note", "nobody has to have it"
    done = CliRunner().invoke(app, ["doctor", "--json"])
    assert done.exit_code == 1
    assert {"what": "extra train", "found": "installed", "verdict": "ok", "advice": ""} in json.loads(
        done.stdout
    )


def test_the_table_of_findings_is_printed() -> None:
    done = CliRunner().invoke(app, ["doctor"], catch_exceptions=False)
    assert "instruction set" in done.stdout
    assert done.exit_code in (0, 1), done.stdout


def test_too_many_threads_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4096")
    assert found("threads").verdict == "problem"
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert found("threads").verdict == "ok"


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def test_a_port_that_is_taken_is_noted(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_PORTS", {taken: "cutlayer serve"})
    assert found(f"port {taken}").verdict == "note"
    assert "--listen" in found(f"port {taken}").advice


def test_a_full_disk_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_LEAST_DISK", 1 << 62)
    assert found("free disk here").verdict == "problem"
