"""Table 1 against figures that can be worked out by hand."""

import json
from pathlib import Path

import pytest

from cutlayer.reproduce.convergence import accuracy as convergence
from cutlayer.reproduce.convergence import traffic
from cutlayer.reproduce.convergence.curves import read_curves
from cutlayer.reproduce.convergence.grid import grid
from cutlayer.reproduce.policies import policies
from cutlayer.reproduce.results import Table

#: Bytes an epoch of smashed data for each policy, from the formulas' 32, 3 and 2.32 bits.
SENT = {"none": 3200, "qu": 300, "sp": 232, "ms": 232, "ms-nearest": 232, "rt": 232}
OTHER = 1000
"""Bytes an epoch of everything else, up; as much again down."""


def write_run(out: Path, policy: str, accuracies: list[float], seed: int = 0, cut: str = "shallow") -> None:
    """The records of a finished run of that accuracy, epoch by epoch."""
    rows = [row for row in policies() if row.label == "none"] if policy == "none" else policies()
    runs = grid("smoke", out, rows, cuts=[cut], seeds=[seed])
    run = next(r for r in runs if r.directory.name == f"{cut}-{policy}-s{seed}")
    settings = run.config.model_dump()
    settings["train"]["epochs"] = len(accuracies)
    run.directory.mkdir(parents=True)
    (run.directory / "config.toml").write_text(type(run.config).model_validate(settings).to_toml())
    up = SENT[policy] + OTHER
    lines = [
        {
            "kind": "epoch",
            "global_step": 10 * i,
            "epoch": i,
            "train_loss": 1 / i,
            "test_loss": 1 / i,
            "accuracy": accuracy / 100,
            "error": 0.1,
            "bytes": {"up": up, "up/smashed": SENT[policy], "up/sync": OTHER, "down": OTHER},
            "raw_bytes": {"up/smashed": 3200},
            "simulated_seconds": 3600.0 * i,
        }
        for i, accuracy in enumerate(accuracies, 1)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (run.directory / "records.jsonl").write_text(text)


def rows(table: Table) -> list[dict[str, object]]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_multiples_by_hand(tmp_path: Path) -> None:
    write_run(tmp_path, "none", [50, 70, 69])
    write_run(tmp_path, "ms", [40, 69.6, 70])
    write_run(tmp_path, "sp", [30, 50, 69.2])
    write_run(tmp_path, "qu", [30, 50, 60])
    found = traffic.findings(tmp_path)
    smashed, everything, details, _, paper = found.tables
    exact, half, one = rows(smashed)
    assert (exact["target %"], half["target %"], one["target %"]) == ("70.00", "69.50", "69.00")
    # The baseline is there after two epochs, MS after three: 6400 / 696 bytes.
    assert exact["MS(0.99, 2)"] == "9.20x"
    assert exact["SP(0.95875)"] == exact["QU(3)"] == "INF"
    # Half a point less is reached by MS after two epochs, too: 6400 / 464.
    assert half["MS(0.99, 2)"] == "13.79x"
    assert half["SP(0.95875)"] == "INF"
    assert one["SP(0.95875)"] == "9.20x"
    assert one["QU(3)"] == "INF"
    # With everything counted: 2 * 5200 / (3 * 2232).
    assert rows(everything)[0]["MS(0.99, 2)"] == "1.55x"
    ms = next(row for row in rows(details) if row["policy"] == "MS(0.99, 2)")
    assert ms["epoch"] == "3"
    assert ms["hours"] == 3
    # Two clients share the bytes: 8 * 3 * 2232 / 2 bits at 100 Mbit/s.
    assert ms["transfer hours"] == pytest.approx(8 * 3 * 2232 / 2 / 1e8 / 3600)
    assert ["CIFAR-10", "shallow", "INF", "INF", "13.11x", "INF"] in [list(row) for row in paper.rows]
    holds = [claim.holds for claim in found.claims]
    assert holds == [True, True], "MS reaches it; QU and SP do not"


def test_means_are_over_the_seeds_that_both_have(tmp_path: Path) -> None:
    for seed, best in ((0, 70), (1, 60)):
        write_run(tmp_path, "none", [50, best], seed)
    write_run(tmp_path, "ms", [50, 69], 0)
    write_run(tmp_path, "ms", [50, 62], 1)
    write_run(tmp_path, "qu", [50, 70], 0)
    found = traffic.findings(tmp_path)
    exact = rows(found.tables[0])[0]
    assert exact["MS(0.99, 2)"] == "13.79x", "65.5 on average, against 65"
    assert exact["QU(3)"] == "10.67x", "against seed 0 of the baseline alone"
    by_seed = {(row["policy"], row["seed"]): row["baseline's best"] for row in rows(found.tables[3])}
    assert by_seed == {("QU(3)", 0): "10.67x", ("MS(0.99, 2)", 0): "INF", ("MS(0.99, 2)", 1): "13.79x"}


def test_convergence_by_hand(tmp_path: Path) -> None:
    for cut, lost in (("shallow", 8), ("medium", 4), ("deep", 0.2)):
        write_run(tmp_path, "none", [50, 70], cut=cut)
        write_run(tmp_path, "sp", [40, 70 - lost], cut=cut)
        write_run(tmp_path, "ms", [50, 69.8], cut=cut)
    found = convergence.findings(tmp_path)
    told = {(row["cut"], row["policy"]): row for row in rows(found.tables[0])}
    assert told["shallow", "SP(0.95875)"]["to none"] == pytest.approx(-8)
    assert told["shallow", "SP(0.95875)"]["smaller"] == pytest.approx(3200 / 232)
    verdicts = {claim.claim.split(" (at")[0]: claim.holds for claim in found.claims}
    assert verdicts["MS(0.99, 2) matches the baseline"] is True
    assert verdicts["QU, SP and RT fail to reach the baseline's accuracy"] == "partly"
    plot = next(plot for plot in found.plots if plot.id == "bytes-shallow")
    series = next(series for series in plot.series if series.name == "SP(0.95875)")
    assert list(series.x) == pytest.approx([232e-9, 464e-9])
    assert list(series.y) == pytest.approx([40, 62])


def test_runs_that_have_not_ended_are_left_out(tmp_path: Path) -> None:
    write_run(tmp_path, "none", [50, 70])
    write_run(tmp_path, "ms", [50, 70])
    path = tmp_path / "convergence" / "runs" / "shallow-ms-s0" / "records.jsonl"
    path.write_text(path.read_text().splitlines()[0] + "\n")
    assert [curve.label for curve in read_curves(tmp_path)] == ["none"]


def test_a_diverged_run_is_inf(tmp_path: Path) -> None:
    write_run(tmp_path, "none", [50, 70])
    write_run(tmp_path, "sp", [50, 71])
    directory = tmp_path / "convergence" / "runs" / "shallow-sp-s0"
    (directory / "diverged.json").write_text('{"step": 12, "why": "the loss is nan"}')
    assert rows(traffic.findings(tmp_path).tables[0])[0]["SP(0.95875)"] == "INF"
    told = {row["policy"]: row for row in rows(convergence.findings(tmp_path).tables[0])}
    assert told["SP(0.95875)"]["accuracy %"] == "diverged: the loss is nan"
