import json
import math

import pytest

from cutlayer.errors import CutlayerError, FileError, RecordError
from cutlayer.reproduce.results import Axis, Claim, Plot, Result, Series, Table, read


def result() -> Result:
    return Result(
        name="error",
        scale="smoke",
        title="Errors",
        claims=[Claim("MS is lower", "partly", "2 of 3")],
        tables=[
            Table(
                "errors", "All errors", ["codec", "error", "ok"], [["a|b", 0.25, True], ["c", math.inf, None]]
            )
        ],
        plots=[
            Plot(
                "p",
                "P",
                "line",
                Axis("bits"),
                Axis("error", log=True),
                [Series("a", [1], [2.0], [1.5], [2.5])],
            )
        ],
        commands=["cutlayer reproduce error"],
        provenance={"commit": "abc"},
        settings={"seed": 0},
    )


def test_a_result_is_read_back_as_it_was_written(tmp_path):
    result().write(tmp_path / "error")
    found = read(tmp_path / "error")
    assert found.to_json() == result().to_json()
    assert found.plots[0].series[0].high == [2.5]
    assert sorted(p.name for p in (tmp_path / "error").iterdir()) == [
        "errors.csv",
        "result.json",
        "tables.md",
    ]


def test_tables_for_people_and_programs(tmp_path):
    result().write(tmp_path)
    assert (tmp_path / "errors.csv").read_text() == "codec,error,ok\na|b,0.25,True\nc,,\n"
    text = (tmp_path / "tables.md").read_text()
    assert "| a\\|b | 0.25 | yes |" in text
    assert "| c | - | - |" in text
    assert "- *MS is lower*: **holds in part**. 2 of 3" in text


def test_a_claim_that_the_data_cannot_decide_says_so(tmp_path):
    open_claim = Claim("MS is faster", "undecided", "0.9 [0.5, 1.3]")
    Result("time", "smoke", "Time", claims=[open_claim]).write(tmp_path)
    assert read(tmp_path).claims == [open_claim]
    assert "- *MS is faster*: **undecided**. 0.9 [0.5, 1.3]" in (tmp_path / "tables.md").read_text()


def test_what_is_not_finite_becomes_null(tmp_path):
    result().write(tmp_path)
    assert json.loads((tmp_path / "result.json").read_text())["tables"][0]["rows"][1] == ["c", None, None]


def test_what_is_no_result_is_named(tmp_path):
    with pytest.raises(FileError, match=r"is .* a result"):
        read(tmp_path)
    for text in ("{", "[]", '{"name": "x"}', '{"claims": [{"no": 1}], "tables": [], "plots": []}'):
        (tmp_path / "result.json").write_text(text)
        with pytest.raises(RecordError, match="not a result") as caught:
            read(tmp_path)
        assert isinstance(caught.value, CutlayerError)
