import pytest
import torch

from cutlayer.config.schema import load
from cutlayer.tasks.classification import Classification


def test_smoothed_loss_by_hand_and_scores_as_they_are() -> None:
    outputs, targets = torch.tensor([[2.0, 0.0, -1.0], [0.0, 1.0, 3.0]]), torch.tensor([0, 1])
    logs = outputs.log_softmax(1)
    right, spread = logs[[0, 1], targets], logs.mean(1)
    plain, smooth = Classification(3), Classification(3, 0.3)
    assert plain.batch_losses(outputs, targets, [1, 1]).tolist() == pytest.approx((-right).tolist())
    expected = (-0.7 * right - 0.3 * spread).tolist()
    assert smooth.batch_losses(outputs, targets, [1, 1]).tolist() == pytest.approx(expected)
    assert float(smooth.loss(outputs, targets)) == pytest.approx(sum(expected) / 2)
    assert smooth.sums(outputs, targets) == plain.sums(outputs, targets)


def test_runs_without_smoothing_are_those_of_earlier_releases() -> None:
    assert "task" not in load(None).identity()
    assert load(None, ["task.label_smoothing=0.2"]).identity()["task"] == {
        "name": "auto",
        "label_smoothing": 0.2,
    }


@pytest.mark.parametrize("samples", [1, 3, 8, 33])
def test_losses_of_equal_batches_have_the_bits_of_each_mean(samples: int) -> None:
    task, clients = Classification(10, 0.1), 5
    rng = torch.Generator().manual_seed(samples)
    outputs = torch.randn(clients * samples, 10, generator=rng, requires_grad=True)
    targets = torch.randint(10, (clients * samples,), generator=rng)
    weights = torch.rand(clients, generator=rng)
    each = torch.nn.functional.cross_entropy(outputs, targets, reduction="none", label_smoothing=0.1)
    apart = torch.stack([part.mean() for part in each.split(samples)])
    together = task.batch_losses(outputs, targets, [samples] * clients)
    assert torch.equal(together, apart)
    gradients = [torch.autograd.grad((losses * weights).sum(), outputs)[0] for losses in (together, apart)]
    assert torch.equal(*gradients)
