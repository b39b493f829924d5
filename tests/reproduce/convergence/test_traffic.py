"""Table 1 against figures that can be worked out by hand."""

import json
from pathlib import Path

import pytest

from cutlayer.errors import RecordError
from cutlayer.report.svg import draw
from cutlayer.reproduce.convergence import accuracy as convergence
from cutlayer.reproduce.convergence import traffic
from cutlayer.reproduce.convergence.curves import mean, read_curves
from cutlayer.reproduce.convergence.grid import grid
from cutlayer.reproduce.convergence.rows import Row
from cutlayer.reproduce.policies import policies
from cutlayer.reproduce.results import Table

#: Bytes an epoch of smashed data for each policy, from the formulas' 32, 3 and 2.32 bits.
SENT = {"none": 3200, "qu": 300, "sp": 232, "ms": 232, "ms-nearest": 232, "rt": 232}
OTHER = 1000
"""Bytes an epoch of everything else, up; as much again down."""


def write_run(
    out: Path,
    policy: str,
    accuracies: list[float],
    seed: int = 0,
    cut: str = "shallow",
    name: str | None = None,
    **train: object,
) -> None:
    """The records of a finished run of that accuracy, epoch by epoch; `name` is its directory's."""
    rows = [row for row in policies() if row.label == "none"] if policy == "none" else policies()
    runs = grid("smoke", out, rows, cuts=[cut], seeds=[seed])
    run = next(r for r in runs if r.directory.name == f"{cut}-{policy}-s{seed}")
    settings = run.config.model_dump()
    settings["train"] |= {"epochs": len(accuracies), **train}
    directory = run.directory.with_name(name) if name else run.directory
    directory.mkdir(parents=True)
    (directory / "config.toml").write_text(type(run.config).model_validate(settings).to_toml())
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
    (directory / "records.jsonl").write_text(text)


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
    assert "hours" not in ms, "those depend on the machine and its load"
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
    assert told["shallow", "SP(0.95875)"]["low"] == -float("inf"), "one pair has no interval"
    verdicts = {claim.claim.split(" (")[0]: claim.holds for claim in found.claims}
    assert verdicts["MS(0.99, 2) matches the baseline"] == "undecided"
    assert verdicts["QU, SP and RT fail to reach the baseline's accuracy"] == "undecided"
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


def test_a_verdict_needs_pairs_and_an_interval(tmp_path: Path) -> None:
    """Four seeds each, which differ by ten points; the policies differ by 0.1 and by 2."""
    for seed, base in enumerate((60, 65, 70, 63)):
        write_run(tmp_path, "none", [50, base], seed)
        write_run(tmp_path, "ms", [50, base - 0.1 + 0.02 * seed], seed)
        write_run(tmp_path, "qu", [50, base - 2 + 0.02 * seed], seed)
    write_run(tmp_path, "rt", [50, 55], 2)
    found = convergence.findings(tmp_path)
    told = {row["policy"]: row for row in rows(found.tables[0])}
    assert told["MS(0.99, 2)"]["verdict"] == "non-inferior"
    assert told["MS(0.99, 2)"]["pairs"] == 4
    assert told["QU(3)"]["verdict"] == "inferior"
    assert told["RT(0.95875)"]["to none"] == pytest.approx(-15)
    assert told["RT(0.95875)"]["interval"] == "pooled spread"
    assert told["none"]["verdict"] is None
    holds = {claim.claim.split(" (")[0]: claim.holds for claim in found.claims}
    assert holds["MS(0.99, 2) matches the baseline"] is True
    assert holds["QU, SP and RT fail to reach the baseline's accuracy"] is True
    together = {row["policy"]: row for row in rows(found.tables[1])}
    assert together["QU(3)"]["pairs"] == 4


def test_more_epochs_are_compared_with_a_baseline_of_as_many_or_not_at_all(tmp_path: Path) -> None:
    """Three epochs reach 75 %, with and without compression; two reach 70 %."""
    for seed in (0, 1, 2):
        write_run(tmp_path, "none", [50, 70], seed)
        write_run(tmp_path, "ms", [50, 65, 75 - 0.1 * seed], seed, name=f"longer-s{seed}")
    told = {row["policy"]: row for row in rows(convergence.findings(tmp_path).tables[0])}
    longer = told["MS(0.99, 2), 3 epochs"]
    assert (longer["epochs"], longer["to none"], longer["verdict"]) == (3, None, "no control")
    lines = rows(traffic.findings(tmp_path).tables[0])
    assert [line["MS(0.99, 2)"] for line in lines if line["epochs"] == 3] == ["no control"] * 3
    for seed in (0, 1, 2):
        write_run(tmp_path, "none", [50, 65, 75], seed, name=f"any-name-{seed}")
    told = {row["policy"]: row for row in rows(convergence.findings(tmp_path).tables[0])}
    assert told["MS(0.99, 2), 3 epochs"]["to none"] == pytest.approx(-0.1), "not five points above"
    assert told["none, 3 epochs"]["epochs"] == 3
    lines = rows(traffic.findings(tmp_path).tables[0])
    within = next(line for line in lines if line["epochs"] == 3 and line["target"] == "within 0.5 points")
    assert (within["target %"], within["MS(0.99, 2)"]) == ("74.50", "13.79x")


def test_another_schedule_is_another_recipe(tmp_path: Path) -> None:
    write_run(tmp_path, "none", [50, 70])
    write_run(tmp_path, "ms", [50, 70])
    write_run(tmp_path, "ms", [50, 71], name="other", schedule="constant")
    told = {row["policy"]: row for row in rows(convergence.findings(tmp_path).tables[0])}
    assert told["MS(0.99, 2)"]["to none"] == pytest.approx(0)
    assert told["MS(0.99, 2), schedule=constant"]["verdict"] == "no control"


def test_means_and_rows_of_different_recipes_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path, "none", [50, 70])
    write_run(tmp_path, "none", [50, 60, 70], 1)
    short, long = read_curves(tmp_path)
    with pytest.raises(RecordError, match="more than the seed"):
        mean([short, long])
    with pytest.raises(RecordError, match="same data, cut, epochs and schedule"):
        Row([long], [short])


def test_the_same_run_twice_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, "none", [50, 70])
    write_run(tmp_path, "none", [50, 71], name="again")
    with pytest.raises(RecordError, match="same settings and seed"):
        read_curves(tmp_path)


def test_a_run_without_a_link_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, "none", [50, 60], name="mine")
    config = tmp_path / "convergence/runs/mine/config.toml"
    config.write_text(config.read_text().replace('"100mbit"', '"none"'))
    with pytest.raises(RecordError, match=r"mine: has no link.spec"):
        read_curves(tmp_path)


def test_a_seed_that_diverged_is_not_left_out_of_the_verdict(tmp_path: Path) -> None:
    for seed in (0, 1, 2, 3):
        write_run(tmp_path, "none", [50, 70], seed)
        write_run(tmp_path, "sp", [50, 70.01 * (1 + seed / 1e5)], seed)
    directory = tmp_path / "convergence" / "runs" / "shallow-sp-s3"
    (directory / "diverged.json").write_text('{"step": 12, "why": "the loss is nan"}')
    first, together, *_ = convergence.findings(tmp_path).tables
    told = {row["policy"]: row for row in rows(first)}
    assert told["SP(0.95875)"]["verdict"] == "diverged"
    assert not together.rows


def test_a_cost_that_differs_between_cuts_is_a_cost(tmp_path: Path) -> None:
    """Two, six and ten points, hardly any spread within a cut: the mean of all cuts is known well."""
    for cut, lost in (("shallow", 10), ("medium", 6), ("deep", 2)):
        for seed in (0, 1):
            write_run(tmp_path, "none", [50, 70 + seed], seed, cut)
            write_run(tmp_path, "sp", [50, 70 + 1.1 * seed - lost], seed, cut)
    (line,) = rows(convergence.findings(tmp_path).tables[1])
    assert (line["pairs"], line["interval"], line["verdict"]) == (6, "own pairs", "inferior")
    assert line["to none"] == pytest.approx(-5.95)
    assert line["high"] == pytest.approx(-5.95 + 3.1824 * 0.005**0.5 / 6**0.5, abs=1e-3)


def test_all_traffic_is_compared_with_float32(tmp_path: Path) -> None:
    write_run(tmp_path, "none", [50, 70])
    write_run(tmp_path, "ms", [40, 69])
    none, ms = rows(convergence.findings(tmp_path).tables[0])
    assert (none["smaller"], none["all smaller"]) == (1, 1)
    # An epoch sends 232 and 2 x 1000 bytes, where float32 would send 3200 and 2 x 1000.
    assert ms["all smaller"] == pytest.approx(5200 / 2232)
    assert ms["GB in all"] == pytest.approx(2 * 2232 / 1e9)


def test_time_to_accuracy_by_hand(tmp_path: Path) -> None:
    write_run(tmp_path, "none", [50, 70, 69])
    write_run(tmp_path, "ms", [40, 60, 69.6])
    write_run(tmp_path, "sp", [30, 50, 60])
    assert all(table.id != "time-to-accuracy" for table in traffic.findings(tmp_path).tables)
    times = {
        "none": {"client_seconds": 0.5, "server_seconds": 0.5},
        "MS(0.99, 2)": {"client_seconds": 0.5 + 1e-5, "server_seconds": 0.5},
        "SP(0.95875)": {"client_seconds": 0.1, "server_seconds": 0.1},
    }
    (tmp_path / "step-times.json").write_text(json.dumps({"cuts": {"shallow": times}}))
    table = next(table for table in traffic.findings(tmp_path).tables if table.id == "time-to-accuracy")
    told = {(row["policy"], row["target"]): row for row in rows(table)}
    # Two clients, ten steps an epoch. None is there after two epochs of 5200 bytes.
    near = "within 0.5 points"
    assert told["none", near]["hours at 1 Mbit/s"] == pytest.approx((20 + 8 * 5200 / 1e6) / 3600)
    assert told["none", near]["does not pay"] is None
    ms = told["MS(0.99, 2)", near]
    assert (ms["epoch"], ms["does not pay"]) == (3, "at 1, 10, 100, 1000 Mbit/s"), "an epoch more"
    assert told["SP(0.95875)", near]["hours at 1 Mbit/s"] == "INF"
    assert told["SP(0.95875)", near]["does not pay"] == "at any rate"
    # Over all epochs, 1.5 * 2968 bytes less a client, against 30 times 10 microseconds more.
    whole = told["MS(0.99, 2)", "all epochs"]
    assert whole["pays below, Mbit/s"] == pytest.approx(8 * 1.5 * 2968 / 1e6 / 3e-4)
    assert whole["does not pay"] == "at 1000 Mbit/s"
    assert told["SP(0.95875)", "all epochs"]["does not pay"] == "pays at all of these"
    for width, lines in ((4, len(table.rows)), (64, 0)):
        content = {"cuts": {"shallow": times}, "settings": {"width": width}}
        (tmp_path / "step-times.json").write_text(json.dumps(content))
        found = {table.id: table for table in traffic.findings(tmp_path).tables}
        assert len(found["time-to-accuracy"].rows) == lines, "times of another width tell nothing"
    (tmp_path / "step-times.json").write_text('{"cuts": {"shallow": {"none": {}}}}')
    with pytest.raises(RecordError, match=r"step-times.json: is damaged"):
        traffic.findings(tmp_path)


def test_the_plot_of_policies_has_a_point_and_an_interval_each(tmp_path: Path) -> None:
    for seed, base in enumerate((60, 65, 70, 63)):
        write_run(tmp_path, "none", [50, base], seed)
        write_run(tmp_path, "ms", [50, base - 0.1 + 0.02 * seed], seed)
    found = convergence.findings(tmp_path)
    plot = next(plot for plot in found.plots if plot.id == "policies-shallow")
    none, ms = plot.series
    assert (plot.kind, none.name, ms.name) == ("scatter", "none", "MS(0.99, 2)")
    assert (list(none.x), list(none.y), none.low) == ([2 * 5200e-9], [64.5], [None])
    told = next(row for row in rows(found.tables[0]) if row["policy"] == "MS(0.99, 2)")
    assert list(ms.y) == pytest.approx([64.5 - 0.07])
    assert ms.low is not None
    assert ms.high is not None
    ends = [float(str(told[end])) for end in ("low", "high")]
    assert [*ms.low, *ms.high] == pytest.approx([64.5 + end for end in ends])
    assert "whisker" in draw([plot])


@pytest.mark.parametrize(
    ("seeds", "drawn"), [(2, {"none", "MS(0.99, 2)", "QU(3)"}), (3, {"none", "MS(0.99, 2)"})]
)
def test_a_policy_with_few_pairs_is_drawn_only_if_all_have_few(
    tmp_path: Path, seeds: int, drawn: set[str]
) -> None:
    for seed in range(seeds):
        write_run(tmp_path, "none", [50, 60 + seed], seed)
        write_run(tmp_path, "ms", [50, 59 + seed * 1.1], seed)
    write_run(tmp_path, "qu", [50, 64], 0)
    plot = next(plot for plot in convergence.findings(tmp_path).plots if plot.id == "policies-shallow")
    assert {series.name for series in plot.series} == drawn
