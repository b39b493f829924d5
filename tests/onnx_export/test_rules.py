"""Every rule gives what PyTorch gives, forward and backward; what has no rule is named."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cutlayer.device.sessions import Session
from cutlayer.errors import ModelError
from cutlayer.onnx_export.tape import gradients
from cutlayer.onnx_export.trace import trace
from cutlayer.onnx_export.training_half import _forward, _vjp
from cutlayer.split.client import ClientModel

pytest.importorskip("onnx")


class Images(nn.Module):
    """Layers on images: strides that leave a rest, dilation, overlapping windows, branches."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.b = nn.Conv2d(8, 8, 3, padding=2, dilation=2, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.c = nn.Conv2d(8, 4, (1, 3), stride=(1, 2))
        self.scale = nn.Parameter(torch.rand(4, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.silu(self.a(x)), 3, stride=2, padding=1)
        x = x + torch.tanh(self.norm(self.b(x))) / 2
        y = F.gelu(self.c(F.avg_pool2d(x, 2, stride=1)))
        return torch.cat([y * self.scale, -torch.sigmoid(y), F.hardtanh(y) - 0.5], 1)


class Vectors(nn.Module):
    """Layers on vectors, behind a pool over all of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 12, 4, stride=4, bias=False)
        self.b, self.c = nn.Linear(12, 10), nn.Linear(10, 6, bias=False)
        self.norm = nn.LayerNorm(10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.adaptive_avg_pool2d(F.leaky_relu(self.a(x), 0.2), 1).flatten(1)
        x = self.norm(F.relu(self.b(x)) + 0.1)
        return self.c(x).exp().unsqueeze(1).transpose(1, 2)


@pytest.mark.parametrize("make", [Images, Vectors])
def test_forward_and_backward_are_those_of_pytorch(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    half = make()
    model = ClientModel([half])
    traced = trace(half, torch.zeros(1, 3, 15, 17), training=True)
    vjp, saved = _vjp(traced, model)
    forward, backward = Session(_forward(traced, saved, {}), "forward", ""), Session(vjp, "vjp", "")
    state = {name: tensor.numpy() for name, tensor in half.state_dict().items()}
    for batch in (7, 2):
        x = torch.randn(batch, 3, 15, 17)
        before = {name: value.copy() for name, value in state.items()}
        expected = half.train()(x)
        given = {name: x.numpy() if name == "images" else before[name] for name in forward.inputs}
        found = dict(zip(forward.outputs, forward(given), strict=True))
        torch.testing.assert_close(
            torch.from_numpy(found["smashed"]), expected.detach(), rtol=1e-4, atol=1e-5
        )
        for name in model.buffer_names:
            np.testing.assert_allclose(found[f"after {name}"], half.state_dict()[name], rtol=1e-4, atol=1e-6)
        gradient = torch.randn_like(expected)
        truth = torch.autograd.grad(expected, model.parameters, gradient)
        given = {**before, **found, "images": x.numpy(), "gradient": gradient.numpy()}
        made = dict(zip(backward.outputs, backward({n: given[n] for n in backward.inputs}), strict=True))
        for name, t in zip(model.parameter_names, truth, strict=True):
            assert (
                float(np.linalg.norm(made[f"gradient of {name}"] - t.numpy()) / (t.norm() + 1e-6)) < 1e-4
            ), name


@pytest.mark.parametrize(
    ("layer", "named"),
    [
        (nn.Dropout(0.5), "draws random numbers"),
        (nn.Conv2d(4, 4, 3, groups=2), "a convolution in 2 groups"),
        (nn.ConvTranspose2d(4, 4, 3), "a transposed convolution"),
        (nn.Softplus(), "aten.log1p"),
    ],
)
def test_what_cannot_be_exported_is_named(layer: nn.Module, named: str) -> None:
    with pytest.raises(ModelError, match=named):
        trace(nn.Sequential(nn.Conv2d(3, 4, 3), layer), torch.zeros(1, 3, 8, 8), training=True)


def test_a_half_without_weights_has_no_gradients() -> None:
    traced = trace(nn.ReLU(), torch.zeros(1, 3, 4, 4), training=True)
    graph, found = gradients(traced.tape, traced.output, "gradient", [])
    assert (graph.nodes, found) == ([], {})
