"""The committed results are what the committed records say: nothing in them is written by hand."""

from importlib import import_module
from pathlib import Path

import pytest

from cutlayer.reproduce import policies
from cutlayer.reproduce.cell_records import CellRecords
from cutlayer.reproduce.convergence import accuracy, traffic
from cutlayer.reproduce.experiment import Request
from cutlayer.reproduce.results import Result, read
from cutlayer.reproduce.scales import Scale

RESULTS = Path(__file__).parents[2] / "experiments" / "results"
VIEWS = {"convergence": accuracy.findings, "traffic": traffic.findings}
# The laptop's grid, and other grids in folders of their own, as `testbed`.
GRIDS = [RESULTS, *sorted(path.parent for path in RESULTS.glob("*/convergence"))]
MODULES = {
    "error": "measurements.error",
    "bounds": "measurements.bounds",
    "time": "measurements.speed",
    "bias": "measurements.bias",
    "transformers": "transformers.study",
}


@pytest.mark.parametrize("name", MODULES)
def test_verdicts_and_tables_follow_from_the_records(name, tmp_path, monkeypatch):
    # Codecs that happen to be installed here were not there when the results were made.
    monkeypatch.setattr(policies, "third_party", list)
    committed = read(RESULTS / name)
    study = import_module(f"cutlayer.reproduce.{MODULES[name]}")
    request = Request(scale=Scale(committed.scale), seed=committed.settings["seed"])
    (tmp_path / "records.jsonl").write_bytes((RESULTS / name / "records.jsonl").read_bytes())
    store = CellRecords(tmp_path, committed.settings)
    store.close()
    found = study.conclude(request, {cell.key: store.finished[cell.key] for cell in study.cells(request)})
    again = Result(name, committed.scale, found.title, found.claims, found.tables, found.plots).to_json()
    for part in ("title", "claims", "tables", "plots"):
        assert again[part] == committed.to_json()[part]
    assert committed.provenance["commit"]
    assert not committed.provenance["modified"]


@pytest.mark.parametrize("folder", GRIDS, ids=lambda folder: folder.name)
@pytest.mark.parametrize("name", VIEWS)
def test_tables_of_training_runs_follow_from_the_runs(name, folder):
    committed, found = read(folder / name), VIEWS[name](folder)
    again = Result(name, committed.scale, found.title, found.claims, found.tables, found.plots).to_json()
    for part in ("title", "claims", "tables", "plots"):
        assert again[part] == committed.to_json()[part], "run: cutlayer reproduce " + name
