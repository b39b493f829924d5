"""The engine with an experiment of its own: what is finished is kept, whatever happens."""

from dataclasses import dataclass, field

import pytest

from cutlayer.errors import ConfigError, FileError, RecordError
from cutlayer.reproduce.cell_records import CellRecords
from cutlayer.reproduce.experiment import Cell, Request, run
from cutlayer.reproduce.results import Findings, Table, read


@dataclass
class Squares:
    """Squares numbers; raises what it is told to at one of them."""

    numbers: list[int]
    extra: int = 0
    trouble: dict[int, type[BaseException]] = field(default_factory=dict)
    done: list[int] = field(default_factory=list)
    prepared: int = 0
    name: str = "squares"

    def settings(self, request):
        return {"extra": self.extra}

    def prepare(self, request, bar):
        self.prepared += 1

    def cells(self, request):
        return [Cell(f"n={n}", self.work, {"n": n}) for n in self.numbers]

    def work(self, request, n):
        if n in self.trouble:
            raise self.trouble[n]
        self.done.append(n)
        return {"square": n * n}

    def conclude(self, request, records):
        rows = [[key, r["square"]] for key, r in records.items()]
        return Findings("Squares", tables=[Table("squares", "Squares", ["n", "square"], rows)])


def test_a_finished_experiment_is_not_repeated(tmp_path):
    first = Squares([1, 2, 3])
    result = run(first, Request(out=tmp_path))
    assert result.tables[0].rows == [["n=1", 1], ["n=2", 4], ["n=3", 9]]
    again = Squares([1, 2, 3])
    assert run(again, Request(out=tmp_path)).to_json() == result.to_json()
    assert (again.done, again.prepared) == ([], 0)
    more = Squares([1, 2, 3, 4])
    run(more, Request(out=tmp_path))
    assert more.done == [4]
    assert read(tmp_path / "squares").tables[0].rows[-1] == ["n=4", 16]


@pytest.mark.parametrize("what", [KeyboardInterrupt, ValueError])
def test_what_was_finished_before_an_interruption_is_kept(tmp_path, what):
    with pytest.raises(what):
        run(Squares([1, 2, 3], trouble={3: what}), Request(out=tmp_path))
    rest = Squares([1, 2, 3])
    run(rest, Request(out=tmp_path))
    assert rest.done == [3]


def test_a_torn_line_is_computed_again(tmp_path):
    run(Squares([1, 2]), Request(out=tmp_path))
    path = tmp_path / "squares" / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    rest = Squares([1, 2])
    run(rest, Request(out=tmp_path))
    assert rest.done == [2]
    assert len(path.read_text().splitlines()) == 5  # settings, session, cell, session, cell


def test_other_settings_are_refused_and_named(tmp_path):
    run(Squares([1]), Request(out=tmp_path))
    with pytest.raises(ConfigError, match=r"extra: 0, now 7.*another --out"):
        run(Squares([1], extra=7), Request(out=tmp_path))
    with pytest.raises(ConfigError, match="seed: 0, now 1"):
        run(Squares([1]), Request(out=tmp_path, seed=1))


def test_damage_and_a_second_process_are_named(tmp_path):
    open_one = CellRecords(tmp_path, {})
    with pytest.raises(FileError, match="another process"):
        CellRecords(tmp_path, {})
    open_one.close()
    (tmp_path / "records.jsonl").write_text('{"kind": "settings", "settings": {}}\nrubbish\n{"kind": "x"}\n')
    with pytest.raises(RecordError, match="line 2"):
        CellRecords(tmp_path, {})
    with pytest.raises(FileError, match="cannot be written"):
        CellRecords(tmp_path / "records.jsonl" / "below", {})
