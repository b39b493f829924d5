import json
from pathlib import Path

import pytest

from cutlayer.errors import ConfigError
from cutlayer.report.run_summary import summarize
from cutlayer.reproduce.convergence.curves import read_curves
from cutlayer.reproduce.convergence.grid import Run, choose, grid, short
from cutlayer.reproduce.convergence.process_pool import train_all
from cutlayer.reproduce.convergence.rows import rows
from cutlayer.reproduce.convergence.run_process import prepare, tidy, train_run
from cutlayer.reproduce.further_policies import FURTHER
from cutlayer.reproduce.policies import Policy, long_run_policies, policies, training_policies
from cutlayer.training import checkpoint, records
from cutlayer.training.train import train


def one(out: Path, policy: str = "ms", **settings: object) -> Run:
    chosen = choose(policies(), [policy])
    (run,) = grid("smoke", out, chosen, cuts=["medium"], **settings)  # type: ignore[arg-type]
    return run


def test_every_scale_has_all_cuts_policies_and_seeds(tmp_path: Path) -> None:
    rows = policies()
    for scale, tasks in (("smoke", 1), ("laptop", 1), ("testbed", 1), ("paper", 3)):
        runs = grid(scale, tmp_path, rows, seeds=[0, 1])
        assert len(runs) == tasks * 3 * len(rows) * 2
        assert len({run.directory for run in runs}) == len(runs)


def test_the_laptop_scale_is_as_promised(tmp_path: Path) -> None:
    (run,) = grid("laptop", tmp_path, choose(policies(), ["ms-nearest"]), cuts=["deep"], seeds=[3])
    config = run.config
    assert run.directory == tmp_path / "convergence" / "runs" / "deep-ms-nearest-s3"
    assert (config.model.name, config.model.width, config.model.cut) == ("resnet18", 16, "deep")
    assert (config.data.source, config.data.limit) == ("cifar10", 25_000)
    assert (config.train.clients, config.train.epochs, config.train.evaluate_every) == (10, 5, 1)
    assert config.codec.up == "ms:ratio=0.99,bits=2,rounding=nearest"
    assert (config.codec.down, config.codec.sync, config.link.spec) == ("none", "none", "100mbit")
    assert config.seed == 3


def test_the_testbed_has_all_images_and_its_own_rows(tmp_path: Path) -> None:
    rows = long_run_policies()
    assert [short(row) for row in rows] == ["none", "ems-100x", "all-30x", "ems", "ms-nearest", "qu", "sp"]
    for run in grid("testbed", tmp_path, rows, cuts=["medium"]):
        config = run.config
        assert (config.model.name, config.data.source, config.data.limit) == (
            "airbench-bf16",
            "cifar10",
            None,
        )
        assert (config.train.clients, config.train.mode, config.train.schedule) == (10, "parallel", "linear")
        assert (config.codec.up, config.codec.down) == (run.policy.spec, run.policy.down)
        assert config.train.sync == run.policy.sync_every


def test_rising_rates_and_longer_runs_are_rows_of_their_own(tmp_path: Path) -> None:
    names = ["none", "ems", "ems-rising", "none-longer", "ems-longer", "ems-all-longer"]
    chosen = choose(training_policies(), names)
    runs = grid("smoke", tmp_path, chosen, cuts=["medium"])
    for run in runs:
        assert prepare(run.config)
        train_run(run.config)
    curves = read_curves(tmp_path)
    rising = "EMS(0.5, then 2.4)"
    longer = [f"{rising}, 3 epochs", f"{rising}, all ways, 3 epochs"]
    assert [curve.label for curve in curves] == ["none", "none, 3 epochs", "EMS(1)", rising, *longer]
    assert [len(curve.points) for curve in curves] == [2, 3, 2, 2, 3, 3]
    first, both = (point.smashed for point in curves[3].points)
    assert both > 2.2 * first  # the stage ends within the second epoch


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no policy 'mss' at this scale; choose from none, qu, sp, ms,"):
        choose(policies(), ["mss"])
    with pytest.raises(ConfigError, match="no cut 'top' at this scale; choose from shallow, medium, deep"):
        grid("smoke", tmp_path, policies(), cuts=["top"])
    with pytest.raises(ConfigError, match="no task 'vgg'"):
        grid("paper", tmp_path, policies(), tasks=["vgg"])


def test_added_codecs_are_named_by_what_they_are() -> None:
    added = policies(["ms:ratio=0.98,bits=3"])
    assert short(next(row for row in added if row.spec == "ms:ratio=0.98,bits=3")) == "ms-ratio-0.98-bits-3"
    assert choose(added, ["ms-ratio-0.98-bits-3"]) == [Policy("ms:ratio=0.98,bits=3", "ms:ratio=0.98,bits=3")]


def test_a_finished_run_keeps_what_is_worth_keeping_and_is_not_repeated(tmp_path: Path) -> None:
    run = one(tmp_path, root="/somewhere/data")
    assert prepare(run.config)
    train(run.config, resume=True)
    full = summarize(run.directory)
    steps = [r for r in records.read(run.directory / "records.jsonl") if r["kind"] == "step"]
    tidy(run.directory, run.config)
    assert not (run.directory / "checkpoints").exists()
    found = list(records.read(run.directory / "records.jsonl"))
    assert [r["kind"] for r in found].count("epoch") == 2
    curve = [r for r in found if r["kind"] == "curve"]
    assert sum(r["steps"] for r in curve) == len(steps)
    losses = [r["loss"] for r in steps]
    weighted = sum(r["steps"] * r["loss"] for r in curve) / len(losses)
    assert weighted == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    thin = summarize(run.directory)
    assert thin.error == pytest.approx(full.error)
    assert vars(thin) | {"error": 0} == vars(full) | {"error": 0}, "the sums are those of all steps"
    assert "somewhere" not in (run.directory / "config.toml").read_text()
    assert str(tmp_path) not in (run.directory / "config.toml").read_text()
    before = {path: path.stat().st_mtime_ns for path in run.directory.iterdir()}
    assert train_all([run], quiet=True) == 0
    assert {path: path.stat().st_mtime_ns for path in run.directory.iterdir()} == before


def test_a_finished_run_is_found_by_its_settings_whatever_its_name(tmp_path: Path) -> None:
    run = one(tmp_path)
    assert prepare(run.config)
    train_run(run.config)
    run.directory.rename(run.directory.with_name("control-7"))
    assert not prepare(run.config)
    assert prepare(one(tmp_path, seeds=[1]).config), "another seed is another run"


def test_other_settings_in_the_same_place_are_refused(tmp_path: Path) -> None:
    run = one(tmp_path)
    prepare(run.config)
    text = (run.directory / "config.toml").read_text().replace("epochs = 2", "epochs = 7")
    (run.directory / "config.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"other settings \(train.epochs: 7, not 2\). Give another --out"):
        prepare(run.config)


def test_a_kill_between_the_last_epoch_and_tidying_is_made_good(tmp_path: Path) -> None:
    run = one(tmp_path)
    prepare(run.config)
    train(run.config, resume=True)
    assert checkpoint.steps(run.directory / "checkpoints")
    assert not prepare(run.config)
    assert not (run.directory / "checkpoints").exists()


def test_divergence_is_a_result(tmp_path: Path) -> None:
    run = one(tmp_path, "none")
    prepare(run.config)
    settings = run.config.model_dump()
    settings["train"]["lr"] = 1e30
    wild = type(run.config).model_validate(settings)
    train_run(wild)
    about = json.loads((run.directory / "diverged.json").read_text())
    assert "diverged" in about["why"]
    assert not prepare(wild), "and is not tried again"


def test_further_policies_are_rows_only_when_named(tmp_path: Path) -> None:
    names = [short(policy) for policy in FURTHER]
    assert len(set(names)) == len(names)
    for known in (long_run_policies(), training_policies()):
        assert not set(names) & {short(policy) for policy in known}
        chosen = choose([*known, *FURTHER], ["none", *names])
        assert len(chosen) == 1 + len(names)
        runs = grid("testbed", tmp_path, chosen, cuts=["medium"])
        identities = [json.dumps(run.config.identity(), sort_keys=True) for run in runs]
        assert len(set(identities)) == len(runs)


def test_further_policies_are_paired_with_none_and_labelled(tmp_path: Path) -> None:
    names = ["none", "diff-epoch", "aqsgd", "fedlite-corrected"]
    for run in grid("smoke", tmp_path, choose([*training_policies(), *FURTHER], names), cuts=["medium"]):
        assert prepare(run.config)
        train_run(run.config)
    ((_, group),) = rows(read_curves(tmp_path)).items()
    assert {row.first.label for row in group} == {
        "none",
        "weights EMS(2), averaged each epoch, as differences",
        "AQ-SGD, QU(3)",
        "FedLite, corrected",
    }
    assert all(len(row.control) == 1 for row in group)


@pytest.mark.parametrize("scale", ["proxy", "testbed"])
def test_the_testbed_has_further_tasks_that_are_trained_only_when_named(tmp_path: Path, scale: str) -> None:
    chosen = choose(policies(), ["none"])
    ((usual,), named) = (
        grid(scale, tmp_path, chosen, cuts=["medium"], tasks=tasks)
        for tasks in ((), ("airbench-cifar10-dirichlet", "airbench-tiny-imagenet-50"))
    )
    assert usual.directory.name == "medium-none-s0"
    skewed, tiny = named
    assert skewed.directory.name == "airbench-cifar10-dirichlet-medium-none-s0"
    assert skewed.config.data.partition == "dirichlet:alpha=0.3"
    assert (tiny.config.data.source, tiny.config.data.size) == ("parquet:tiny-imagenet-50", 32)
    for run in (usual, skewed, tiny):
        assert prepare(run.config)
        (run.directory / "diverged.json").write_text('{"why": "it was not trained"}')
    assert [curve.task for curve in read_curves(tmp_path)] == [
        "airbench-bf16-cifar10",
        "airbench-bf16-cifar10-dirichlet-alpha-0.3",
        "airbench-bf16-tiny-imagenet-50",
    ]
