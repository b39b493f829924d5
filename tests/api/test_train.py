from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import cutlayer
from cutlayer.data import Dataset
from cutlayer.errors import CheckpointError, ConfigError, CutError, DataError, ModelError, TaskError
from cutlayer.tasks.classification import Classification

Problem = dict[str, Any]


def losses(result: cutlayer.Result) -> list[float]:
    return [record["loss"] for record in result.records if record["kind"] == "step"]


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(
        torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    )


def test_a_model_and_data_written_here(model: nn.Module, problem: Problem) -> None:
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    result = cutlayer.train(model, **problem)
    assert result.steps == 12
    assert result.accuracy is not None
    assert result.accuracy == result.evaluation.metrics["accuracy"]  # type: ignore[union-attr]
    assert result.bytes["up/smashed"] > 0
    assert len(losses(result)) == 12
    assert result.directory is None
    assert not result.stopped
    assert isinstance(result.model, nn.Sequential)
    assert result.loss is not None
    x, y = problem["test"]
    # The codec is not between the halves here, so it is near and not equal.
    assert F.cross_entropy(result.model(x), y).item() == pytest.approx(result.loss, rel=0.1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


def test_it_is_the_run_of_the_command_line(problem: Problem, tmp_path: Path) -> None:
    settings = {"data.limit": 48, "model.width": 4, "train.evaluate_every": 0}
    by_name = cutlayer.train("tiny", at="medium", train="digits", clients=2, epochs=1, settings=settings)
    from cutlayer.training.train import train

    config = cutlayer.Config.model_validate(
        {
            "data": {"limit": 48},
            "model": {"name": "tiny", "width": 4},
            "train": {"clients": 2, "epochs": 1, "evaluate_every": 0},
            "output": {"dir": str(tmp_path / "run"), "tensorboard": False},
        }
    )
    train(config)
    run = cutlayer.load_run(tmp_path / "run")
    assert same(run.model, by_name.model)
    assert run.step == by_name.steps
    assert [r["loss"] for r in run.records if r["kind"] == "step"] == losses(by_name)
    assert len(run.parts) == 2
    assert losses(cutlayer.train(config=config, settings={"output.dir": "x"})) == losses(by_name)


def test_data_in_every_form_are_the_same(model: nn.Module, problem: Problem) -> None:
    train, test = problem.pop("train"), problem.pop("test")
    results = [
        cutlayer.train(model, train=make(*train), test=make(*test), **problem)
        for make in (
            lambda x, y: (x, y),
            lambda x, y: (x.double().numpy(), y.int().numpy()),
            lambda x, y: TensorDataset(x, y),
            lambda x, y: [(sample, int(label)) for sample, label in zip(x, y, strict=True)],
            lambda x, y: Dataset(x, y, 2),
        )
    ]
    assert all(losses(found) == losses(results[0]) for found in results)


def test_a_loss_and_an_optimizer_of_ones_own(model: nn.Module, problem: Problem) -> None:
    del problem["lr"]

    def smooth(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, label_smoothing=0.2)

    def adam(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=0.01)

    plain = cutlayer.train(model, optimizer="sgd", lr=0.01, **problem)
    own = cutlayer.train(model, loss=smooth, optimizer=adam, **problem)
    assert own.records[0]["lr"] == 0.01
    assert losses(own) != losses(plain)
    fused = cutlayer.train(
        model, loss=nn.CrossEntropyLoss(), settings={"train.server_batching": "fused"}, **problem
    )
    task = cutlayer.train(
        model, loss=Classification(2), settings={"train.server_batching": "fused"}, **problem
    )
    assert losses(fused) == pytest.approx(losses(task), rel=1e-5)


def test_a_u_shape_and_codec_objects(model: nn.Module, problem: Problem) -> None:
    problem |= {"at": ("1", "3"), "codec": cutlayer.codec("qu:bits=6"), "down": cutlayer.codec("dense")}
    result = cutlayer.train(model, **problem)
    assert result.bytes["up/labels"] == 0
    assert result.bytes["up/gradients"] > 0


def test_a_callback_sees_all_and_stops_a_run_that_can_be_resumed(
    model: nn.Module, problem: Problem, tmp_path: Path
) -> None:
    seen: list[tuple[str, int]] = []

    def watch(event: cutlayer.Event) -> None:
        seen.append((event.kind, event.record["global_step"]))
        if seen[-1] == ("step", 8):
            event.stop()

    whole = cutlayer.train(model, **problem)
    stopped = cutlayer.train(model, **problem, out=tmp_path / "run", callbacks=[watch])
    assert (stopped.stopped, stopped.steps) == (True, 8)
    steps = [("step", n) for n in range(1, 9)]
    assert seen == [*steps[:6], ("evaluation", 6), ("epoch", 6), *steps[6:]]
    again = cutlayer.train(model, **problem, out=tmp_path / "run", resume=True)
    assert not again.stopped
    assert losses(again) == losses(whole)
    assert same(again.model, whole.model)
    longer = cutlayer.train(model, **problem | {"epochs": 3}, out=tmp_path / "run", resume=True)
    assert longer.steps == 18
    assert losses(longer)[:12] == losses(whole)


def test_a_run_with_objects_needs_them_again(model: nn.Module, problem: Problem, tmp_path: Path) -> None:
    trained = cutlayer.train(model, **problem, out=tmp_path / "run")
    with pytest.raises(
        ModelError, match=r"a Python object, a Sequential, .*cutlayer\.load_run\(path, model="
    ):
        cutlayer.load_run(tmp_path / "run")
    fresh = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.Dropout(0.1), nn.Linear(8, 2))
    assert same(cutlayer.load_run(tmp_path / "run", model=fresh).model, trained.model)
    with pytest.raises(CheckpointError, match="shape"):
        cutlayer.load_run(tmp_path / "run", model=nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 2)))
    with pytest.raises(ConfigError, match="given as objects; give them again"):
        cutlayer.train(model, at="1", out=tmp_path / "run", resume=True)


def test_keywords_come_on_top_of_settings_and_settings_on_top_of_a_configuration(
    model: nn.Module, problem: Problem, tmp_path: Path
) -> None:
    del problem["lr"]
    config = cutlayer.Config.model_validate({"train": {"lr": 0.3, "momentum": 0.5}})
    settings = {"train.lr": 0.2, "train.mode": "sequential", "train.epochs": 7, "train.schedule": "constant"}
    result = cutlayer.train(model, config=config, settings=settings, out=tmp_path / "run", **problem)
    found = cutlayer.load_run(tmp_path / "run", model=model).config.train
    assert (found.lr, found.mode, found.momentum, found.epochs) == (0.2, "sequential", 0.5, 2)
    assert result.records[0]["lr"] == 0.2


def test_mistakes_are_named(model: nn.Module, problem: Problem) -> None:
    x, y = problem["train"]
    for change, error, said in (
        ({"at": None}, ConfigError, "at= says where"),
        ({"at": "9"}, CutError, "9"),
        ({"at": 1}, ConfigError, "such as '1'"),
        ({"callbacks": print}, ConfigError, r"callbacks=\[function\]"),
        (
            {"train": (x.double(), y), "test": (x.double(), y)},
            ModelError,
            r"inputs are float64.*x\.float\(\)",
        ),
        ({"test": None}, ConfigError, "test= is missing"),
        ({"train": (x, y.float())}, DataError, "must have one form"),
        ({"train": (x, y[:5])}, DataError, "96 inputs but 5 targets"),
        ({"train": 3}, DataError, "is a int"),
        ({"train": DataLoader([(x[0], 1)])}, DataError, r"a DataLoader.*Give its data set, loader\.dataset"),
        ({"test": "digits"}, DataError, "test= is a str.*give train= as a name"),
        ({"train": None}, ConfigError, "train= is missing"),
        ({"train": None, "test": None}, ConfigError, "train= is missing"),
        ({"train": (x.half(), y), "test": (x.half(), y)}, ModelError, r"inputs are float16.*x\.float\(\)"),
        (
            {"train": (x[:, :5], y), "test": (x[:, :5], y)},
            ModelError,
            r"inputs \[8, 5\].*cannot be multiplied.*layers expect",
        ),
        ({"train": (x, y[:, None]), "test": (x, y[:, None])}, TaskError, r"each pixel.*y\.squeeze\(1\)"),
        ({"at": ("0", "1", "2")}, ConfigError, "or two names"),
        ({"loss": nn.CrossEntropyLoss}, ConfigError, r"give an object of it: CrossEntropyLoss\(\)"),
        ({"optimizer": "adam"}, ConfigError, r"torch\.optim\.Adam"),
        ({"train": (x[:, :5], y)}, DataError, "they must agree"),
        ({"loss": 3}, ConfigError, "function of outputs and targets"),
        ({"optimizer": lambda parameters: None}, ConfigError, "must make a torch optimizer"),
        (
            {"optimizer": torch.optim.SGD(model.parameters())},
            ConfigError,
            "not be one: a SGD. Give a function",
        ),
        ({"device": "meta"}, ConfigError, "cannot train"),
        ({"codec": "qq"}, ConfigError, "qq"),
        ({"resume": True}, ConfigError, "resume needs out="),
        ({"epoch": 3}, TypeError, "unexpected keyword argument 'epoch'. Did you mean 'epochs'"),
    ):
        with pytest.raises(error, match=said):
            cutlayer.train(model, **problem | change)
    with pytest.raises(ConfigError, match=r"the class Linear; give a module, such as Net\(\)"):
        cutlayer.train(nn.Linear, **problem)


def test_the_first_program_of_the_page_has_twenty_lines_at_most() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "python.md").read_text("utf-8")
    program = page.split("```python\n", 1)[1].split("```", 1)[0]
    assert "cutlayer.train(" in program
    assert len(program.splitlines()) <= 20
