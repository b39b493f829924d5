import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cutlayer.errors import ConfigError, FileError, RecordError
from cutlayer.report.find_results import find_results
from cutlayer.report.formats import write_report
from cutlayer.report.page import page
from cutlayer.reproduce.results import Claim, Result


class Seen(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_has_everything_in_it(result: Result) -> None:
    seen = Seen(page([result]))
    assert seen.tags.count("svg") == len(result.plots)
    assert seen.tags.count("table") == 1
    for text in ("A result of MS(0.99, 2)", "holds in part", "as told", "70", *result.commands, '"cpu"'):
        assert text in seen.text, text
    linked = [value or "" for name, value in seen.attributes if name in ("src", "href")]
    assert all(link.startswith(("#", "data:")) for link in linked), linked


def test_an_undecided_claim_is_neither_green_nor_red(result: Result) -> None:
    claim = Claim("It is faster", "undecided", "0.9 [0.5, 1.3]")
    seen = Seen(page([Result(**{**vars(result), "claims": [claim]})]))
    assert "undecided" in seen.text
    assert ("class", "undecided") in seen.attributes


def test_hostile_names_stay_text(hostile: Result) -> None:
    seen = Seen(page([hostile]))
    assert seen.tags.count("script") == 1
    assert "img" not in seen.tags
    assert not [name for name, _ in seen.attributes if name.startswith("on")]
    assert "<script>alert(1)</script>" in seen.text
    assert "\x00" not in seen.text


def test_long_tables_are_folded(result: Result) -> None:
    table = result.tables[0]
    long = Result(**{**vars(result), "tables": [type(table)("t", "Long", ("n",), [[i] for i in range(500)])]})
    assert "500 rows" in Seen(page([long])).text


def test_results_are_read_from_their_folder_and_written_in_every_format(
    result: Result, tmp_path: Path
) -> None:
    result.write(tmp_path / "results" / "example")
    (found,) = find_results([tmp_path / "results"])
    assert found.to_json() == result.to_json()
    assert find_results([tmp_path / "results", tmp_path / "results" / "example"]) == [found], "each once"
    (markdown,) = write_report([found], "markdown", tmp_path / "r.md")
    assert "| MS(0.99, 2) | 70 | - |" in markdown.read_text()
    (table,) = write_report([found], "csv", tmp_path / "csv")
    assert table.name == "example-t.csv"
    assert table.read_text() == 'policy,accuracy,saved\n"MS(0.99, 2)",70.0,\n'
    (picture,) = write_report([found], "svg", tmp_path / "p.svg", "bytes")
    assert picture.read_text().startswith("<svg")
    with pytest.raises(ConfigError, match="no plot 'bits'; there are: bars, bytes-shallow, cloud"):
        write_report([found], "svg", tmp_path / "p.svg", "bits")


@pytest.mark.parametrize(
    ("part", "value", "told"),
    [
        ("claims", [{"claim": "a", "holds": "maybe", "evidence": ""}], "not 'maybe'"),
        ("tables", [{"id": "t", "title": "t", "columns": ["a", "b"], "rows": [[1]]}], "as many cells"),
        ("tables", 7, "not a result"),
    ],
)
def test_a_damaged_result_is_refused(
    result: Result, tmp_path: Path, part: str, value: object, told: str
) -> None:
    result.write(tmp_path)
    content = json.loads((tmp_path / "result.json").read_text())
    (tmp_path / "result.json").write_text(json.dumps(content | {part: value}))
    with pytest.raises(RecordError, match=told):
        find_results([tmp_path])


def test_what_is_neither_run_nor_result_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="nowhere: there is no such folder"):
        find_results([tmp_path / "nowhere"])
    with pytest.raises(FileError, match="neither a run"):
        find_results([tmp_path])
