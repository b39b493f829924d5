"""Metrics over a whole test set, put together from sums of batches: equal to scikit-learn's on everything."""

import math
from typing import Any

import pytest
import torch
from sklearn import metrics as sk
from torch import Tensor
from torch.nn import functional as F

from cutlayer.errors import MessageError, TaskError
from cutlayer.tasks import Metric, Target, Task, build
from cutlayer.tasks.classification import Classification

RNG = torch.Generator().manual_seed(3)


def scored(
    task: Task, outputs: Tensor, targets: Tensor, sizes: tuple[int, ...] = (7, 1, 12)
) -> dict[str, float]:
    """The results of batches of these sizes."""
    pairs = zip(outputs.split(sizes), targets.split(sizes), strict=True)
    sums = torch.zeros(len(task.sum_names), dtype=torch.float64)
    for part, wanted in pairs:
        found = task.sums(part, wanted)
        task.check_sums(found, len(wanted))
        sums += torch.tensor(found, dtype=torch.float64)
    return task.results(sums.tolist(), len(targets))


def test_classification_counts_right_ones() -> None:
    outputs, targets = torch.randn(20, 8, generator=RNG), torch.randint(8, (20,), generator=RNG)
    found = scored(build("auto", Target("integers", (), 8)), outputs, targets)
    assert found["accuracy"] == pytest.approx(sk.accuracy_score(targets, outputs.argmax(1)))
    top5 = sk.top_k_accuracy_score(targets, outputs, k=5, labels=range(8))
    assert found["accuracy_top5"] == pytest.approx(top5)
    assert found["loss"] == pytest.approx(float(F.cross_entropy(outputs, targets)), rel=1e-6)


def test_label_smoothing_is_for_training_only() -> None:
    outputs, targets = torch.randn(20, 3, generator=RNG), torch.randint(3, (20,), generator=RNG)
    task = build("classification", Target("integers", (), 3), {"label_smoothing": 0.1})
    assert float(task.loss(outputs, targets)) == float(F.cross_entropy(outputs, targets, label_smoothing=0.1))
    both = task.batch_losses(outputs, targets, [15, 5])
    alone = [
        float(task.loss(o, t)) for o, t in zip(outputs.split([15, 5]), targets.split([15, 5]), strict=True)
    ]
    assert both.tolist() == pytest.approx(alone)
    assert scored(task, outputs, targets)["loss"] == pytest.approx(float(F.cross_entropy(outputs, targets)))


def test_multilabel() -> None:
    outputs, targets = torch.randn(20, 5, generator=RNG), torch.rand(20, 5, generator=RNG) < 0.3
    found = scored(build("auto", Target("integers", (5,), 2, bits=True)), outputs, targets)
    assert found["micro_f1"] == pytest.approx(sk.f1_score(targets, outputs > 0, average="micro"))
    assert found["exact_match"] == pytest.approx(sk.accuracy_score(targets, outputs > 0))
    assert found["loss"] == pytest.approx(
        float(F.binary_cross_entropy_with_logits(outputs, targets.float())), rel=1e-6
    )


@pytest.mark.parametrize("shape", [(), (3,), (100,)])
def test_regression(shape: tuple[int, ...]) -> None:
    outputs, targets = torch.randn(20, *shape, generator=RNG), 5 + torch.randn(20, *shape, generator=RNG)
    found = scored(build("auto", Target("floats", shape)), outputs, targets)
    flat = [x.reshape(20, -1).double() for x in (targets, outputs)]
    # So many outputs are taken together.
    pooled = [x.reshape(-1, 1) for x in flat] if shape == (100,) else flat
    assert found["r2"] == pytest.approx(sk.r2_score(*pooled))
    assert found["mse"] == pytest.approx(sk.mean_squared_error(*flat))
    assert found["mae"] == pytest.approx(sk.mean_absolute_error(*flat))
    assert found["loss"] == pytest.approx(found["mse"], rel=1e-5)


def test_regression_in_the_units_of_the_targets() -> None:
    task = build("regression", Target("floats"), {"shift": 100.0, "scale": 20.0})
    targets = torch.tensor([80.0, 100.0, 120.0])
    assert float(task.loss(torch.tensor([[-1.0], [0.0], [1.0]]), targets)) == 0
    found = scored(task, torch.tensor([-1.0, 0.5, 1.0]), targets, (2, 1))
    assert found["mae"] == pytest.approx(10 / 3)


@pytest.mark.parametrize(
    ("name", "function"), [("l1", F.l1_loss), ("huber", F.huber_loss), ("mse", F.mse_loss)]
)
def test_regression_losses(name: str, function: Any) -> None:
    outputs, targets = torch.randn(9, generator=RNG), 3 * torch.randn(9, generator=RNG)
    task = build("regression", Target("floats"), {"loss": name})
    assert torch.equal(task.loss(outputs, targets), function(outputs, targets))


def test_r2_of_targets_that_never_vary_is_not_a_number() -> None:
    found = scored(build("auto", Target("floats")), torch.randn(20), torch.ones(20))
    assert math.isnan(found["r2"])


def test_segmentation() -> None:
    outputs, targets = torch.randn(20, 4, 3, 2, generator=RNG), torch.randint(4, (20, 3, 2), generator=RNG)
    found = scored(build("auto", Target("integers", (3, 2), 4)), outputs, targets)
    said, wanted = outputs.argmax(1).flatten(), targets.flatten()
    assert found["mean_iou"] == pytest.approx(sk.jaccard_score(wanted, said, average="macro"))
    assert found["pixel_accuracy"] == pytest.approx(sk.accuracy_score(wanted, said))
    assert found["loss"] == pytest.approx(float(F.cross_entropy(outputs, targets)), rel=1e-6)


def test_pixels_that_are_ignored_count_nowhere() -> None:
    target = Target("integers", (3, 2), 4)
    task = build("segmentation", target, {"ignore": 255})
    outputs, targets = torch.randn(20, 4, 3, 2, generator=RNG), torch.randint(4, (20, 3, 2), generator=RNG)
    targets[:, 0] = 255
    arrived = task.unpack(task.pack(targets), 20)
    plain = build("segmentation", Target("integers", (2, 2), 4))
    for masks in (targets, arrived):  # as the client has them in a U-shape, and as the server gets them
        found, expected = scored(task, outputs, masks), scored(plain, outputs[:, :, 1:], targets[:, 1:])
        assert found == pytest.approx(expected)
        assert float(task.loss(outputs, masks)) == pytest.approx(
            float(plain.loss(outputs[:, :, 1:], targets[:, 1:]))
        )


def test_a_batch_in_which_nothing_counts_has_no_loss_and_no_gradient() -> None:
    task = build("segmentation", Target("integers", (2,), 3), {"ignore": 9})
    outputs = torch.randn(4, 3, 2, generator=RNG, requires_grad=True)
    loss = task.loss(outputs, torch.full((4, 2), 9))
    loss.backward()
    assert float(loss.detach()) == 0
    assert not bool(outputs.grad.any())


def test_language() -> None:
    outputs, targets = torch.randn(20, 6, 9, generator=RNG), torch.randint(9, (20, 6), generator=RNG)
    task = build("auto", Target("integers", (6,), 9, sequence=True))
    found = scored(task, outputs, targets)
    loss = float(F.cross_entropy(outputs.reshape(-1, 9), targets.reshape(-1)))
    assert found["loss"] == pytest.approx(loss, rel=1e-6)
    assert found["perplexity"] == pytest.approx(math.exp(loss), rel=1e-5)
    assert found["bits_per_character"] == pytest.approx(loss / math.log(2), rel=1e-6)
    assert task.batch_losses(outputs, targets, [5, 15]).mean() == pytest.approx(
        float(task.loss(outputs[:5], targets[:5]) + task.loss(outputs[5:], targets[5:])) / 2
    )


TARGETS = {
    "classification": Target("integers", (), 8),
    "multilabel": Target("integers", (5,), 2, bits=True),
    "regression": Target("floats", (2,)),
    "segmentation": Target("integers", (3, 2), 2),
    "language": Target("integers", (6,), 9, sequence=True),
}
IMPOSSIBLE = [
    ("classification", [1.0, 5.0, 4.0], "right"),
    ("classification", [1.0, 5.0, 11.0], "right"),
    ("multilabel", [1.0, 11.0, 0.0, 0.0, 0.0], "exact matches"),
    ("multilabel", [1.0, 0.0, 30.0, 20.0, 1.0], "positives"),
    ("regression", [1.0, -1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0], "negative"),
    ("segmentation", [1.0, 61.0, *[0.0] * 6], "61 pixels"),
    ("segmentation", [1.0, 10.0, 6.0, 0.0, 5.0, 5.0, 5.0, 5.0], "intersection"),
    ("segmentation", [1.0, 10.0, 5.0, 0.0, 5.0, 4.0, 5.0, 5.0], "pixels"),
    ("language", [1.0, 59.0], "59 tokens"),
    ("language", [-1.0, 60.0], "negative"),
    ("language", [math.nan, 60.0], "is nan"),
    ("language", [math.inf, 60.0], "is inf"),
    ("language", [1.0], "1 sums"),
]


@pytest.mark.parametrize(("name", "sums", "said"), IMPOSSIBLE)
def test_sums_that_cannot_be_are_refused(name: str, sums: list[float], said: str) -> None:
    with pytest.raises(MessageError, match=said):
        build(name, TARGETS[name]).check_sums(sums, 10)


@pytest.mark.parametrize("name", TARGETS)
def test_outputs_of_another_shape_are_named(name: str) -> None:
    task = build(name, TARGETS[name])
    targets = torch.zeros(4, *TARGETS[name].shape, dtype=torch.int64)
    if name == "regression":
        targets = targets.float()
    with pytest.raises(TaskError, match=r"outputs of shape \[4, 17\]"):
        task.loss(torch.zeros(4, 17), targets)
    with pytest.raises(TaskError, match="gives a str"):
        task.loss("words", targets)


def test_logits_of_hugging_face_s_outputs_are_found() -> None:
    logits, targets = torch.randn(4, 3, generator=RNG), torch.tensor([0, 1, 2, 0])
    task = Classification(3)
    for outputs in ({"logits": logits}, (logits, "more")):
        assert torch.equal(task.loss(outputs, targets), task.loss(logits, targets))


def test_better_follows_the_direction() -> None:
    assert Metric("a").better(2, 1)
    assert not Metric("a").better(1, 2)
    assert Metric("a", higher=False).better(1, 2)
    assert not Metric("a", higher=False).better(2, 1)
    assert Metric("a").best([1, math.nan, 3, 2]) == 3
    assert Metric("a", higher=False).best([math.nan, 3, 2]) == 2
    assert math.isnan(Metric("a").best([]))
