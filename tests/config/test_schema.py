from pathlib import Path

import pytest

from cutlayer.config import schema as module
from cutlayer.config.recipes import RECIPES, recipe
from cutlayer.config.resolve import refuse_existing_run, resolve_config
from cutlayer.config.schema import Config, load
from cutlayer.errors import ConfigError, FileError


def test_toml_round_trip(tmp_path: Path) -> None:
    config = load(
        None,
        [
            "seed=3", "codec.up=ms:ratio=0.9", "train.sync=4", "train.schedule=steps", "data.limit=100",
            "train.milestones=[2, 5]",
            'model.cut=["layer1", "fc"]', "train.mode=u-shaped", "link.spec=100mbit,10ms",
        ],
    )  # fmt: skip
    path = tmp_path / "run.toml"
    path.write_text(config.to_toml())
    assert load(path) == config
    assert Config.model_validate_json(config.to_json()) == config
    assert config.codec.up == "ms:ratio=0.9,bits=2"
    assert config.model.cut == ("layer1", "fc")


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('[train]\nlr = 0.5\nmode = "relay"\n')
    config = load(path, ["train.lr=1e-3", "train.nesterov=true", "data.source=digits"])
    assert (config.train.lr, config.train.mode, config.train.nesterov) == (1e-3, "relay", True)


@pytest.mark.parametrize(
    ("overrides", "lines"),
    [
        (["train.epoch=3"], ["train.epoch: no such setting; did you mean 'epochs'?"]),
        (["trian.lr=1"], ["trian: no such setting; did you mean 'train'?"]),
        (["x=1"], ["x: no such setting; there are: seed, model, data, task, train, codec, robust, link"]),
        (["train.sync=often"], ["train.sync: expected 'step' or 'epoch', or a valid integer, not 'often'"]),
        (["train.lr=0"], ["train.lr: expected greater than 0, not 0"]),
        (["train.lr=nan"], ["train.lr: expected a finite number, not nan"]),
        (["train.clients=true"], ["train.clients: expected a valid integer, not True"]),
        (["train.mode=paralel"],
         ["train.mode: expected 'parallel', 'sequential', 'relay', 'u-shaped' or 'async', not 'paralel'"]),
        (["codec.up=mss"], ["codec.up: there is no codec 'mss' (did you mean 'ms'?)"]),
        (["codec.down=ms:bits=99"], ["codec.down: ms: bits=99 is not allowed"]),
        (["link.spec=fast"], ["link.spec: 'fast' in the link"]),
        (["data.partition=odd"], ["data.partition: no partition 'odd'"]),
        (["train.mode=u-shaped"], ["model.cut: mode u-shaped needs two names"]),
        (['model.cut=["a", "b"]'], ["model.cut: mode parallel needs one name"]),
        (["train.mode=relay", "train.server_batching=fused"], ["train.server_batching: mode relay updates"]),
        (["train.mode=relay", "train.aggregation=allreduce"], ["train.aggregation: in mode relay"]),
        (["codec.sync=qu:bits=8", "train.aggregation=allreduce"], ["codec.sync: an all-reduce adds numbers"]),
        (["codec.sync=qu:bits=8", "train.aggregation=allgather"], ["codec.feedback: with train.aggregation"]),
        (["train.schedule=steps"], ["train.milestones: give them with schedule = steps"]),
        (["train.milestones=[3, 2]", "train.schedule=steps"], ["train.milestones: epochs must increase"]),
        (["train.warmup_epochs=11"], ["train.warmup_epochs: 11 of 10 epochs"]),
        (["train.warmup_epochs=-0.5"], ["train.warmup_epochs"]),
        (["train.nesterov=true", "train.momentum=0"], ["train.nesterov: needs"]),
        (["train=3"], ["train: expected"]),
        (["train.epoch=3", "codec.up=mss"], ["train.epoch: no such", "codec.up: there is no"]),
    ],
)  # fmt: skip
def test_each_problem_has_a_line(overrides: list[str], lines: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, overrides)
    found = str(caught.value).splitlines()
    assert len(found) == len(lines)
    for line, expected in zip(found, lines, strict=True):
        assert line.startswith(f"configuration: {expected}")


@pytest.mark.parametrize("text", ["train.lr", "=3", "train..lr=3", ".=1"])
def test_overrides_must_be_of_the_form(text: str) -> None:
    with pytest.raises(ConfigError, match="not of the form"):
        load(None, [text])


def test_an_override_cannot_enter_a_value() -> None:
    with pytest.raises(ConfigError, match="not a section"):
        load(None, ["seed=1", "seed.x=2"])


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "absent.toml")
    (tmp_path / "bad.toml").write_bytes(b"[train\n")
    with pytest.raises(ConfigError, match="not TOML"):
        load(tmp_path / "bad.toml")
    (tmp_path / "latin.toml").write_bytes(b'x = "\xe9"\n')
    with pytest.raises(ConfigError, match="not TOML"):
        load(tmp_path / "latin.toml")


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_valid(name: str) -> None:
    assert module.from_mapping(recipe(name), name).train.clients == 10


def test_identity_leaves_out_what_does_not_shape_results() -> None:
    base = load(None)
    same = load(None, ["output.dir=elsewhere", "train.checkpoint_every=5", "data.root=/x", "link.spec=1gbit"])
    other = load(None, ["train.lr=0.2"])
    assert same.identity() == base.identity() != other.identity()


def test_what_is_not_set_is_left_out_of_toml_and_files_of_earlier_versions_load(tmp_path: Path) -> None:
    config = load(None, ["train.schedule=steps", "train.milestones=[60, 120]", 'data.root=a "b" \\ c'])
    text = config.to_toml()
    assert "cache_dir" not in text
    path = tmp_path / "run.toml"
    # As it was written before: one line a list, strings escaped as in JSON.
    path.write_text(
        '[data]\nroot = "a \\"b\\" \\\\ c"\n\n[train]\nschedule = "steps"\nmilestones = [60, 120]\n'
    )
    assert load(path) == config
    path.write_text(text)
    assert load(path) == config


def test_resolving_names_a_section_that_is_a_value() -> None:
    with pytest.raises(ConfigError, match="output: expected"):
        resolve_config(None, None, {}, ["output=3"], False)
    with pytest.raises(ConfigError, match="'train' is a value, not a section"):
        load(None, ["train=3", "train.lr=1"])


def test_a_directory_with_a_run_is_refused(tmp_path: Path) -> None:
    refuse_existing_run(tmp_path, resume=False)
    (tmp_path / "records.jsonl").touch()
    refuse_existing_run(tmp_path, resume=False)  # it ended before it wrote anything
    (tmp_path / "records.jsonl").write_text("{}")
    with pytest.raises(FileError, match=r"config\.toml, are missing.*--resume and the file"):
        refuse_existing_run(tmp_path, resume=False)
    with pytest.raises(FileError, match=r"config\.toml, are missing.*--resume and the file"):
        resolve_config(None, None, {"output.dir": str(tmp_path)}, [], True)
    (tmp_path / "config.toml").touch()
    refuse_existing_run(tmp_path, resume=True)
    with pytest.raises(FileError, match=r"there is a run already\. Continue it with --resume"):
        refuse_existing_run(tmp_path, resume=False)


def test_options_of_a_task_and_names_that_are_nearly_right(tmp_path: Path) -> None:
    config = load(None, ["task.name=regression", "task.loss=huber", "task.delta=0.5"])
    assert config.task.options == {"loss": "huber", "delta": 0.5}
    (tmp_path / "c.toml").write_text(config.to_toml())
    assert load(tmp_path / "c.toml") == config
    assert "task" not in load(None, []).identity()
    assert config.identity()["task"] == {"name": "regression", "loss": "huber", "delta": 0.5}
    with pytest.raises(ConfigError, match="no task 'regresion'; did you mean 'regression'"):
        load(None, ["task.name=regresion"])
    with pytest.raises(ConfigError, match=r"task.loss: expected a number, a word or a truth value"):
        load(None, ["task.loss=[1, 2]"])


def test_settings_that_came_later_leave_the_identity_of_earlier_runs_alone() -> None:
    plain = load(None, []).identity()
    assert {"blocks", "heads", "patch"}.isdisjoint(plain["model"])
    assert {"target", "features", "tokens", "context", "classes", "lazy"}.isdisjoint(plain["data"])
    assert load(None, ["data.context=64"]).identity()["data"]["context"] == 64
    assert load(None, ["data.lazy=true"]).identity() == plain
