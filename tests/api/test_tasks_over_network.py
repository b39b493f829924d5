"""Every task, and models with skips, masks and several inputs: over gRPC the same bits as in one process."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import cutlayer
from cutlayer.models.gpt import gpt


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def layers(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, outputs))


def table(nets: Any) -> tuple[nn.Module, str, Any, Tensor, str]:
    x = numbers(60, 6)
    return layers(1), "1", x, x[:, 0] - 2 * x[:, 1], "r2"


def labels(nets: Any) -> tuple[nn.Module, str, Any, Tensor, str]:
    x = numbers(60, 6)
    return layers(4), "1", x, x[:, :4] > 0.3, "micro_f1"


def masks(nets: Any) -> tuple[nn.Module, str, Any, Tensor, str]:
    x = numbers(60, 2, 6, 6)
    return nets.MaskUNet(3, 2), "down2", x, (x[:, 0] > 0).long() + (x[:, 1] > 0.5), "mean_iou"


def text(nets: Any) -> tuple[nn.Module, str, Any, Tensor, str]:
    tokens = (torch.arange(60)[:, None] + 2 * torch.arange(9)) % 7
    model = gpt(classes=7, width=8, context=8, blocks=2, heads=2)
    return model, "block1", tokens[:, :-1], tokens[:, 1:], "perplexity"


def two_inputs(nets: Any) -> tuple[nn.Module, str, Any, Tensor, str]:
    ids, values = torch.arange(180).reshape(60, 3) % 5, numbers(60, 3)
    return nets.TwoInputs(1), "mix", (ids, values), ids[:, 0] + values[:, 0], "mse"


def named_inputs(nets: Any) -> tuple[nn.Module, str, Any, Tensor, str]:
    model, at, (ids, values), targets, metric = two_inputs(nets)
    return model, at, {"ids": ids, "values": values}, targets, metric


def attention_mask(nets: Any) -> tuple[nn.Module, str, Any, Tensor, str]:
    pytest.importorskip("transformers", reason="needs the extra `hf`: pip install 'cutlayer[hf]'")
    ids = 1 + torch.arange(360).reshape(60, 6) % 7
    mask = (torch.arange(6) < 2 + torch.arange(60)[:, None] % 5).long()
    inputs = {"input_ids": ids * mask, "attention_mask": mask}
    return nets.bert(2), "bert.encoder.layer.0", inputs, ids[:, 0] % 2, "accuracy"


def chosen(inputs: Any, rows: slice) -> Any:
    if isinstance(inputs, dict):
        return {name: tensor[rows] for name, tensor in inputs.items()}
    return tuple(tensor[rows] for tensor in inputs) if isinstance(inputs, tuple) else inputs[rows]


@pytest.mark.parametrize("make", [table, labels, masks, text, two_inputs, named_inputs, attention_mask])
def test_the_same_bits_as_in_one_process(
    make: Callable[[Any], Any], several_nets: Any, over_network: Callable[..., cutlayer.Result]
) -> None:
    torch.manual_seed(0)
    model, at, inputs, targets, metric = make(several_nets)
    train, test = ((chosen(inputs, rows), targets[rows]) for rows in (slice(40), slice(40, 60)))
    settings: dict[str, Any] = {
        "at": at,
        "train": train,
        "test": test,
        "clients": 2,
        "codec": "qu:bits=6,rounding=stochastic",
        "epochs": 1,
        "batch_size": 8,
        "optimizer": "adamw",
        "lr": 0.01,
    }
    alone, served = cutlayer.train(model, **settings), over_network(model, **settings)
    pairs = zip(alone.model.state_dict().values(), served.model.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert served.evaluation is not None
    assert math.isfinite(served.evaluation.metrics[metric])
    assert served.evaluation.metrics == alone.evaluation.metrics
    assert served.bytes["up/labels"] == alone.bytes["up/labels"] > 0
