"""Every task trains: as plain PyTorch to the bit, in every mode, with exact resume and metrics by name."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from cutlayer.config.schema import Config
from cutlayer.data import ArrayDataset, DataSource, FederatedData, Sampler, as_dataset
from cutlayer.models import ANY_MODEL
from cutlayer.protocol.build import federate, prepare_model
from cutlayer.report.compare_runs import compare_runs
from cutlayer.report.run_summary import summarize
from cutlayer.split.tensors import call, main_output
from cutlayer.tasks import Target
from cutlayer.tasks.own_loss import OwnLoss
from cutlayer.training import checkpoint
from cutlayer.training.local_run import LocalRun, local_run
from cutlayer.training.records import read
from cutlayer.training.tensorboard import numbers
from cutlayer.training.train import train

NETS = """
from torch import nn

def table(classes, in_channels):
    return nn.Sequential(
        nn.Linear(in_channels, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, classes)
    )

def pixels(classes, in_channels):
    return nn.Sequential(
        nn.Conv2d(in_channels, 8, 3, padding=1), nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(),
        nn.Conv2d(8, classes, 1),
    )
"""


def rows(count: int, seed: int) -> torch.Tensor:
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))


def table(seed: int, count: int) -> DataSource:
    x = rows(count, seed)
    return ArrayDataset(x, x[:, 0] - 2 * x[:, 1] + 0.5, name="table")


def labelled(seed: int, count: int) -> DataSource:
    x = rows(count, seed)
    return ArrayDataset(x, x[:, :4] + x[:, 1:5] > 0.3, name="labelled")


def masks(seed: int, count: int) -> DataSource:
    x = torch.randn(count, 2, 6, 6, generator=torch.Generator().manual_seed(seed))
    return ArrayDataset(x, (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long(), classes=3, name="masks")


def text(seed: int, count: int) -> DataSource:
    start = torch.randint(7, (count, 1), generator=torch.Generator().manual_seed(seed))
    tokens = (start + 2 * torch.arange(9)) % 7
    return ArrayDataset(tokens[:, :-1], tokens[:, 1:], classes=7, tokens=7, name="text")


def sentences(seed: int, count: int) -> DataSource:
    """Token numbers, padded with 0, and which of them are words; the class is that of the first word."""
    rng = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, 8, (count, 6), generator=rng)
    mask = torch.arange(6) < torch.randint(2, 7, (count, 1), generator=rng)
    return ArrayDataset(
        {"input_ids": ids * mask, "attention_mask": mask.long()}, ids[:, 0] % 2, classes=2, tokens=8
    )


def pairs(seed: int, count: int) -> DataSource:
    rng = torch.Generator().manual_seed(seed)
    ids, values = torch.randint(5, (count, 3), generator=rng), torch.randn(count, 3, generator=rng)
    return ArrayDataset((ids, values), ids[:, 0] + values[:, 0], tokens=5)


CE = F.cross_entropy
CASES: dict[str, tuple[Callable[[int, int], DataSource], list[str], str, Callable[[Any, Any], Any], str]] = {
    "regression": (
        table, ["model.name=task_nets:table", 'model.cut="1"'], '["1", "4"]',
        lambda out, y: F.mse_loss(out[:, 0], y), "mse",
    ),
    "multilabel": (
        labelled, ["model.name=task_nets:table", 'model.cut="1"'], '["1", "4"]',
        lambda out, y: F.binary_cross_entropy_with_logits(out, y.float()), "micro_f1",
    ),
    "segmentation": (
        masks, ["model.name=task_nets:pixels", 'model.cut="1"'], '["1", "4"]',
        CE, "mean_iou",
    ),
    "language": (
        text, ["model.name=gpt", "model.cut=shallow", "model.width=8", "model.heads=2", "model.blocks=2"],
        '["block1", "fc"]', lambda out, y: CE(out.reshape(-1, 7), y.reshape(-1)), "perplexity",
    ),
}  # fmt: skip
# The same tasks with a cut of several tensors, and with several inputs.
SEVERAL = {
    "segmentation, skips": (
        masks, ["model.name=several_nets:MaskUNet", "model.cut=down2"], '["down2", "out"]', CE, "mean_iou",
    ),
    "regression, a tuple": (
        pairs, ["model.name=several_nets:TwoInputs", "model.cut=mix"], "",
        lambda out, y: F.mse_loss(out[:, 0], y), "mse",
    ),
    "classification, a mask in a dict": (
        sentences, ["model.name=several_nets:bert", "model.cut=bert.encoder.layer.0"], "", CE, "accuracy",
    ),
}  # fmt: skip
ALL = CASES | SEVERAL
Configure = Callable[..., Config]


@pytest.fixture(autouse=True)
def nets(tmp_path: Path, several_nets: Any) -> None:
    # Beside `several_nets`, which is importable.
    (tmp_path / "task_nets.py").write_text(NETS)


def made(configure: Configure, name: str, *settings: str, u: bool = False) -> tuple[Config, FederatedData]:
    if name == "classification, a mask in a dict":
        pytest.importorskip("transformers", reason="needs the extra `hf`: pip install 'cutlayer[hf]'")
    make, model, cuts, _, _ = ALL[name]
    shape = ["train.mode=u-shaped", f"model.cut={cuts}"] if u else []
    config = configure(*model, "train.optimizer=adamw", "train.lr=0.01", *shape, *settings)
    return config, federate(config, make(0, 60), make(1, 20))


@pytest.mark.parametrize(
    ("name", "u"),
    [pytest.param(name, False, id=f"{name}-two parts") for name in ALL]
    + [pytest.param(name, True, id=f"{name}-u-shaped") for name, case in ALL.items() if case[2]],
)
def test_one_client_is_plain_training_to_the_last_bit(configure: Configure, name: str, u: bool) -> None:
    config, data = made(configure, name, "train.clients=1", u=u)
    run, loss_of = local_run(config, data), ALL[name][3]
    assert run.server.task.name == name.partition(",")[0]
    whole = prepare_model(config, data.train, ANY_MODEL)[0].train()
    opt = torch.optim.AdamW(whole.parameters(), config.train.lr, weight_decay=config.train.weight_decay)
    sampler = Sampler(data.parts[0], config.train.batch_size, seed=config.seed, client=0)
    while not run.done:
        step = run.server.plan.at(run.number)
        inputs, targets = data.train.batch(sampler.batch(step.epoch, step.step))
        opt.param_groups[0]["lr"] = step.lr
        opt.zero_grad()
        loss = loss_of(main_output(call(whole, inputs)), targets)
        loss.backward()
        opt.step()
        assert run.step().loss == float(loss.detach())
    for key, tensor in whole.state_dict().items():
        assert torch.equal(run.model().state_dict()[key], tensor), key


MODES: dict[str, list[str]] = {
    "parallel": [],
    "fused": ["train.server_batching=fused", "codec.down=qu:bits=8"],
    "sequential": ["train.mode=sequential", "train.sync=3"],
}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        pytest.param(name, settings, id=f"{name}-{mode}")
        for name in ALL
        for mode, settings in MODES.items()
        if name in CASES or mode == "parallel"
    ],
)
def test_runs_go_on_exactly(configure: Configure, name: str, settings: list[str]) -> None:
    config, data = made(configure, name, "codec.up=qu:bits=4,rounding=stochastic", *settings)
    whole, first, second = (local_run(config, data) for _ in range(3))
    losses = [whole.step().losses for _ in range(whole.server.plan.total)]
    for _ in range(4):
        first.step()
    second.restore(*first.state())
    assert [second.step().losses for _ in range(4, whole.server.plan.total)] == losses[4:]
    assert second.evaluate().metrics == whole.evaluate().metrics


@pytest.mark.parametrize("name", CASES)
def test_fused_batches_have_the_loss_of_each(configure: Configure, name: str) -> None:
    alone = local_run(*made(configure, name)).step()
    fused = local_run(*made(configure, name, "train.server_batching=fused")).step()
    assert fused.losses == pytest.approx(alone.losses, rel=1e-5)


def learned(name: str, run: LocalRun) -> None:
    """Far better than a model that has learned nothing."""
    found = run.evaluate().metrics
    good = {
        "regression": lambda: found["r2"] > 0.6,
        "multilabel": lambda: found["micro_f1"] > 0.75,
        "segmentation": lambda: found["mean_iou"] > 0.5,
        "language": lambda: found["perplexity"] < 3,
    }
    assert good[name](), found


@pytest.mark.parametrize("u", [False, True], ids=["two parts", "u-shaped"])
@pytest.mark.parametrize("name", CASES)
def test_every_task_learns_and_a_tail_scores_as_the_server_does(
    configure: Configure, name: str, u: bool
) -> None:
    run = local_run(*made(configure, name, "train.epochs=8", "train.lr=0.05", u=u))
    while not run.done:
        run.step()
    learned(name, run)
    model, test = run.model(), run.data.test
    inputs, targets = test.batch(torch.arange(len(test)))
    task = run.server.task
    with torch.no_grad():
        expected = task.results(task.sums(model(inputs), targets), len(test))
    scored = run.evaluate()
    assert {"loss": scored.loss, **scored.metrics} == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_metrics_stand_under_their_names_everywhere(configure: Configure, tmp_path: Path, name: str) -> None:
    config, data = made(configure, name, "train.epochs=3", "output.keep=1")
    result = train(config, data=data)
    main, names = CASES[name][4], [metric.name for metric in local_run(config, data).server.task.metrics]
    epochs = [record for record in read(tmp_path / "run" / "records.jsonl") if record["kind"] == "epoch"]
    assert all(math.isfinite(epoch[metric]) for epoch in epochs for metric in names)
    assert {"accuracy", "accuracy_top5"}.isdisjoint(epochs[0])
    assert {f"epoch/{metric}" for metric in names} <= {tag for tag, _ in numbers(epochs[-1], "epoch")}
    values = [epoch[main] for epoch in epochs]
    best = max(values) if result.metric.higher else min(values)
    assert (result.metric.name, result.best) == (main, best)
    assert result.best_step == epochs[values.index(best)]["global_step"]
    assert result.best_step in checkpoint.steps(tmp_path / "run" / "checkpoints")
    summary = summarize(tmp_path / "run").to_json()
    assert (summary[main], summary[f"best_{main}"]) == (values[-1], best)
    assert json.loads((tmp_path / "run" / "task.json").read_text())["name"] == name
    report = compare_runs([tmp_path / "run"])
    assert {metric.replace("_", " ") for metric in names} <= {
        c.removesuffix(" %") for c in report.tables[0].columns
    }
    assert set(names) <= {plot.id for plot in report.plots}
    # Going on changes nothing.
    again = train(config, data=data, resume=True)
    assert (again.best, again.best_step, again.scored) == (result.best, result.best_step, result.scored)


def test_inputs_by_name_and_by_position(configure: Configure) -> None:
    (ids, values), targets = pairs(0, 40).batch(torch.arange(40))
    settings = ["model.name=several_nets:TwoInputs", "model.cut=mix", "train.lr=0.01", "train.clients=2"]
    config = configure(*settings)
    losses = []
    for inputs in ({"ids": ids, "values": values}, (ids, values)):
        data = as_dataset((inputs, targets), tokens=5)
        run = local_run(config, federate(config, data, data))
        losses.append([run.step().loss for _ in range(4)])
        assert math.isfinite(run.evaluate().metrics["mse"])
    assert losses[0] == losses[1]


def test_a_task_can_be_an_object(configure: Configure) -> None:
    config, _ = made(configure, "regression", "train.clients=1")
    x = rows(40, 0)
    data = as_dataset((x, x[:, :1]))
    run = local_run(
        config, federate(config, data, data), OwnLoss.of(F.smooth_l1_loss, Target("floats", (1,)))
    )
    inputs, targets = data.batch(run.clients.clients[0].sampler.batch(0, 0))
    expected = F.smooth_l1_loss(run.model()(inputs), targets)
    assert run.step().loss == pytest.approx(float(expected.detach()), rel=1e-6)
    scored = run.evaluate()
    assert scored.metrics == {}
    assert scored.value(run.server.task.main) == scored.loss


def test_a_run_of_a_task_without_metrics_goes_by_its_loss(configure: Configure, tmp_path: Path) -> None:
    config, _ = made(configure, "regression")
    x = rows(40, 0)
    data = as_dataset((x, x[:, :1]))
    task = OwnLoss.of(F.smooth_l1_loss, Target("floats", (1,)))
    result = train(config, data=federate(config, data, data), task=task)
    epochs = [record for record in read(tmp_path / "run" / "records.jsonl") if record["kind"] == "epoch"]
    assert result.best == min(epoch["test_loss"] for epoch in epochs)
    assert (result.metric.name, result.metric.higher) == ("test_loss", False)
    summary = summarize(tmp_path / "run")
    assert summary.metrics == {"test_loss": epochs[-1]["test_loss"]}
    assert summary.best == result.best


def test_bias_of_gradients_is_that_of_the_task_s_loss(configure: Configure, tmp_path: Path) -> None:
    config, data = made(configure, "regression", "codec.up=qu:bits=3", "train.track_bias=5", "train.epochs=1")
    train(config, data=data)
    first = next(iter(read(tmp_path / "run" / "records.jsonl")))
    assert 0 < first["bias"]["compression_error"] < 1
