"""Each experiment at smoke scale, through the command, on real feature maps of digits."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from cutlayer.commands.reproduce import reproduce
from cutlayer.errors import ConfigError, UnknownCodecError
from cutlayer.reproduce.results import read


def invoke(*words: object) -> Result:
    app = typer.Typer()
    app.callback()(lambda: None)
    reproduce.register(app)
    return CliRunner().invoke(app, ["reproduce", *(str(word) for word in words)])


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of the experiment on errors; all share its model."""
    out = tmp_path_factory.mktemp("results")
    assert invoke("error", "--out", out, "--codec", "km:bits=3").exit_code == 0
    return out


def found(out: Path, name: str, *words: object) -> dict:
    result = invoke(name, "--out", out, "--json", *words)
    assert result.exit_code == 0, result.exception
    printed = json.loads(result.stdout)
    assert printed == read(out / name).to_json()
    assert printed["name"] == name
    assert printed["provenance"]["seed"] == 0
    for table in printed["tables"]:
        assert all(len(row) == len(table["columns"]) for row in table["rows"])
        assert (out / name / f"{table['id']}.csv").exists()
    return printed


def rows(result: dict, table: str) -> list[dict]:
    chosen = next(t for t in result["tables"] if t["id"] == table)
    return [dict(zip(chosen["columns"], row, strict=True)) for row in chosen["rows"]]


def test_error(out: Path) -> None:
    result = found(out, "error", "--codec", "km:bits=3")
    errors = {(r["cut"], r["codec"]): r["relative squared error"] for r in rows(result, "errors")}
    for cut in ("shallow", "medium", "deep"):
        # k-means has the least error of the quantizers; rounding to the nearest beats rounding down.
        assert errors[cut, "km:bits=3"] < errors[cut, "qu:bits=3"]
        assert errors[cut, "ms:ratio=0.99,bits=2,rounding=nearest"] < errors[cut, "ms:ratio=0.99,bits=2"]
        assert 0 < errors[cut, "ms:ratio=0.99,bits=2"] < errors[cut, "sp:ratio=0.95875"] < 1
    claims = {c["claim"]: c["holds"] for c in result["claims"]}
    assert (
        claims["The error of MS (as printed, rounding down) is always lower than that of SP at the same rate"]
        is True
    )
    assert {s["name"] for s in result["plots"][0]["series"]} >= {
        "QU",
        "SP",
        "MS floor",
        "MS nearest",
        "RT",
        "km:bits=3",
    }


def test_bounds_in_one_process_and_in_two(out: Path, tmp_path: Path) -> None:
    result = found(out, "bounds")
    for row in rows(result, "bounds"):
        if row["bound"] is None:
            assert "ems:bpe=1.0" in row.values()
            continue
        assert row["error"] <= row["bound"]
        if row["sharper bound"] is not None:
            assert row["error"] <= row["sharper bound"] <= row["bound"]
    assert all(0 < r["alpha"] < 1 for r in rows(result, "conditions"))
    # The model is at hand, so that the second run computes cells only.
    (tmp_path / "models").symlink_to(out / "models")
    second = found(tmp_path, "bounds", "--jobs", 2)
    assert second["tables"] == result["tables"]


def test_bias(out: Path) -> None:
    result = found(out, "bias")
    tests = rows(result, "expectation")
    assert {r["codec"] for r in tests} >= {"QU(3) stochastic", "RK(0.95875)", "RT(0.95875)"}
    for row in tests:
        assert row["low"] <= row["error along a direction"] <= row["high"]
    biased = {(r["cut"], r["codec"], r["of"]): r["biased"] for r in tests}
    assert all(biased[cut, "RT(0.95875)", "smashed data"] for cut in ("shallow", "medium", "deep"))
    assert all(biased[cut, "RK(0.95875)", "all"] for cut in ("shallow", "medium", "deep"))
    layers = rows(result, "layers")
    assert {r["side"] for r in layers if r["cut"] == "medium"} == {"client", "server"}
    assert all(r["gradient error / E"] > 0 for r in layers)


def test_time(out: Path) -> None:
    result = found(out, "time")
    times = rows(result, "times")
    assert {r["method"] for r in times} >= {"SP", "MS", "RT", "RT, k draws", "KM (k-means)"}
    assert all(r["encode"] > 0 for r in times)
    assert result["claims"] == []
    refused = invoke("time", "--out", out, "--jobs", 2)
    assert isinstance(refused.exception, ConfigError)
    assert "one after another" in str(refused.exception)


def test_people_get_tables_and_claims_and_nothing_is_computed_again(out: Path) -> None:
    before = (out / "error" / "records.jsonl").read_bytes()
    shown = invoke("error", "--out", out)
    assert shown.exit_code == 0, shown.exception
    assert "is always lower than that of SP at the same rate: holds." in shown.stdout
    assert "ms:ratio=0.99,bits=2" in shown.stdout
    assert (out / "error" / "records.jsonl").read_bytes() == before


def test_mistakes(out: Path) -> None:
    assert isinstance(invoke("error", "--codec", "zip").exception, UnknownCodecError)
    refused = invoke("error", "--out", out, "--seed", 5)
    assert isinstance(refused.exception, ConfigError)
    assert "seed: 0, now 5" in str(refused.exception)
    assert invoke("error", "--scale", "huge").exit_code == 2
    assert "--scale" in invoke("error", "--help").stdout


def test_transformers(out: Path) -> None:
    result = found(out, "transformers", "--codec", "qu:bits=2")
    losses = {(r["model"], r["codec"]): r for r in rows(result, "losses")}
    assert losses["gpt", "none"]["seeds"] == losses["gpt", "EMS(2)"]["seeds"] == 2
    assert losses["gpt", "EMS(2)"]["bits"] <= 2 < losses["gpt", "QU(4)"]["bits"] < 5
    assert losses["gpt", "none"]["error"] == 0 < losses["gpt", "EMS(2)"]["error"] < 0.5
    # The text repeats one sentence, of which even these few steps learn something.
    assert 0 < losses["gpt", "none"]["validation loss"] < 3
    assert losses["gpt", "qu:bits=2"]["error"] > losses["gpt", "QU(4)"]["error"]
    tested = {(r["model"], r["codec"]): r for r in rows(result, "tested")}
    assert tested["gpt", "EMS(2)"]["seeds"] == 1
    assert 1 < tested["gpt", "EMS(2)"]["bits"] <= 2 < tested["gpt", "QU(4)"]["bits"] < 5
    assert abs(tested["gpt", "EMS(3)"]["to none"]) < 0.1
    assert [claim["claim"].partition(":")[2] for claim in result["claims"]] == [
        " gpt, behind block1",
        " vit, behind block1",
    ]
