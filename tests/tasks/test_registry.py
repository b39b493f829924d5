"""Tasks by name: the built-in ones and their options, what data suggest, and a user's own."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from cutlayer.errors import TaskError
from cutlayer.tasks import ANY_TASK, TASKS, AllowedTasks, Floats, Metric, Target, Task, build, chosen
from cutlayer.tasks.metric import metrics_of
from cutlayer.tasks.own_loss import OwnLoss

OWN = """
from cutlayer.tasks import Floats, Metric, Task

class Quantile(Task):
    metrics = (Metric("pinball", higher=False),)

    def __init__(self, shape, q=0.5):
        self.q, self.targets = q, Floats(shape)

    def loss(self, outputs, targets):
        error = targets - outputs.reshape(targets.shape)
        return (self.q * error).maximum((self.q - 1) * error).mean()

    def results(self, sums, samples):
        return {"loss": sums[0] / samples, "pinball": sums[0] / samples}

ready = Quantile((), 0.9)
number = 7

def broken():
    raise KeyError("x")
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_tasks.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    return "own_tasks:Quantile"


@pytest.mark.parametrize(
    ("target", "name"),
    [
        (Target("integers", (), 10), "classification"),
        (Target("integers", (4,), 2, bits=True), "multilabel"),
        (Target("floats"), "regression"),
        (Target("floats", (3, 8, 8)), "regression"),
        (Target("integers", (8, 8), 3), "segmentation"),
        (Target("integers", (16,), 65, sequence=True), "language"),
    ],
)
def test_data_suggest_a_task(target: Target, name: str) -> None:
    assert chosen(target) == name
    task = build("auto", target)
    assert type(task) is TASKS[name]
    assert task.name == name
    assert task.main is task.metrics[0]
    assert metrics_of(task.describe()) == task.metrics


@pytest.mark.parametrize(
    ("name", "target", "options", "said"),
    [
        ("classification", Target("floats"), {}, "one class number a sample; the data have floats"),
        ("multilabel", Target("integers", (3,), 5), {}, r"integers of shape \[3\] from 0 to 4"),
        ("regression", Target("integers", (), 3), {}, "needs floats"),
        ("segmentation", Target("integers", (), 3), {}, "each pixel"),
        ("language", Target("integers", (2, 2), 3), {}, "each token"),
        ("classification", Target("integers", (), 3), {"smoothing": 0.1}, "did you mean 'label_smoothing'"),
        ("classification", Target("integers", (), 3), {"classes": 4}, "it has: label_smoothing"),
        ("classification", Target("integers", (), 3), {"label_smoothing": 1.5}, "below 1"),
        ("classification", Target("integers", (), 3), {"label_smoothing": "x"}, "cannot have these options"),
        ("regression", Target("floats"), {"loss": "cubic"}, "mse, l1 or huber"),
        ("regression", Target("floats"), {"scale": 0.0}, "task.scale is 0.0"),
        ("regresion", Target("floats"), {}, "Did you mean 'regression'"),
    ],
)
def test_what_does_not_fit_is_said(name: str, target: Target, options: dict[str, object], said: str) -> None:
    with pytest.raises(TaskError, match=said):
        build(name, target, options)


def test_a_user_s_own_task_is_built_for_the_targets(own: str) -> None:
    task = build(own, Target("floats", (2,)), {"q": 0.9}, ANY_TASK)
    assert task.main == Metric("pinball", higher=False)
    outputs, targets = torch.zeros(3, 2), torch.ones(3, 2)
    assert float(task.loss(outputs, targets)) == pytest.approx(0.9)
    assert torch.equal(task.unpack(task.pack(targets), 3), targets)
    assert task.describe()["name"] == "Quantile"


def test_names_of_others_are_imported_only_if_allowed(own: str) -> None:
    for allowed in (None, AllowedTasks(), AllowedTasks.of(["own_tasks:other"])):
        with pytest.raises(TaskError, match=r"nothing was imported.*--allow-task own_tasks:Quantile"):
            build(own, Target("floats"), allowed=allowed)
    assert build(own, Target("floats"), allowed=AllowedTasks.of([own])).name == ""
    mine = OwnLoss.of(torch.nn.functional.l1_loss, Target("floats"))
    assert build(own, Target("floats"), allowed=AllowedTasks.of((), {own: mine})) is mine
    with pytest.raises(TaskError, match="cannot be allowed"):
        AllowedTasks.of(["rm -rf"])


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("own_tasks:number", {}, "is a int; expected a cutlayer.tasks.Task"),
        ("own_tasks:broken", {}, "could not make a task: KeyError"),
        ("own_tasks:ready", {"q": 1}, "takes no options: q"),
        ("own_tasks:Quantile", {"quantile": 1}, "could not make a task: TypeError"),
        ("own_tasks:Missing", {}, "has no 'Missing'"),
        ("no_tasks_here:Task", {}, "no module 'no_tasks_here'"),
        ("a b:c", {}, "not of the form"),
    ],
)
def test_own_tasks_that_are_none(own: str, name: str, options: dict[str, object], said: str) -> None:
    with pytest.raises(TaskError, match=said):
        build(name, Target("floats"), options, ANY_TASK)
    assert isinstance(build("own_tasks:ready", Target("floats"), {}, ANY_TASK), Task)


def test_a_loss_function_is_a_task_whose_metric_is_the_loss() -> None:
    task = OwnLoss.of(torch.nn.functional.mse_loss, Target("floats", (2,)))
    assert task.targets == Floats((2,))
    assert (task.main.name, task.main.higher) == ("test_loss", False)
    assert task.results(task.sums(torch.zeros(3, 2), torch.ones(3, 2)), 3) == {"loss": 1.0}

    def each(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).abs()

    with pytest.raises(TaskError, match=r"one number, not one of shape \[3, 2\]"):
        OwnLoss.of(each, Target("floats", (2,))).loss(torch.zeros(3, 2), torch.ones(3, 2))


def test_a_loss_function_compares_a_column_of_outputs_with_its_targets() -> None:
    task = OwnLoss.of(torch.nn.functional.l1_loss, Target("floats"))
    targets = torch.tensor([1.0, 2.0, 4.0])
    # Broadcast to [3, 3], as PyTorch would with a warning, it would be above 1.
    assert float(task.loss(targets[:, None], targets)) == 0
    column = OwnLoss.of(torch.nn.functional.l1_loss, Target("floats", (1,)))
    assert float(column.loss(targets, targets[:, None])) == 0
