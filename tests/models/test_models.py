"""The built-in models: shapes at the named cuts, exactness of every cut, seeds, users' models."""

import copy
import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from cutlayer.errors import ModelError
from cutlayer.models import MODELS, Cuts, build, cut_module
from cutlayer.split import CutPoint, cut, cut_points

# Thin, and as small as the model allows: every cut is tried.
SMALL = {
    "vgg19": {"image_size": 32, "in_channels": 3},
    "resnet18": {"image_size": 16, "in_channels": 3},
    "resnet34": {"image_size": 65, "in_channels": 3},  # the stem for large images
    "airbench": {"image_size": 16, "in_channels": 3},
    "airbench-bf16": {"image_size": 16, "in_channels": 3},
    "tiny": {"image_size": 8, "in_channels": 1},
    "gpt": {"context": 6, "vocabulary": 5, "options": {"blocks": 3, "heads": 2}},
    "mlp": {"in_channels": 6},
    "vit": {"image_size": 8, "in_channels": 3, "options": {"blocks": 2, "heads": 2}},
}


def small(name: str) -> tuple[nn.Module, torch.Tensor]:
    settings = SMALL[name]
    torch.manual_seed(1)
    if "context" in settings:
        x = torch.randint(5, (2, settings["context"]))
    elif "image_size" not in settings:
        x = torch.randn(2, settings["in_channels"])
    else:
        size = settings["image_size"]
        x = torch.randn(2, settings["in_channels"], size, size)
    return build(name, classes=5, width=4, **settings), x


@functools.cache
def every_cut(name: str) -> list[CutPoint]:
    return cut_points(*small(name))


def test_every_model_is_tried() -> None:
    assert SMALL.keys() == MODELS.keys()


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", MODELS)
def test_cut_at_any_point_equals_the_whole(name: str, training: bool) -> None:
    """Outputs, gradients and running statistics to the bit, with only tensors handed over."""
    original, x = small(name)
    labels = torch.tensor([0, 3]).repeat_interleave(x.shape[1]) if name == "gpt" else torch.tensor([0, 3])
    whole = copy.deepcopy(original).train(training)
    expected = whole(x)
    F.cross_entropy(expected.reshape(-1, 5), labels).backward()
    gradients = {n: p.grad for n, p in whole.named_parameters()}
    assert every_cut(name)
    for point in every_cut(name):
        model = copy.deepcopy(original)
        client, server = (part.train(training) for part in cut(model, at=point.name))
        sent = client(x)
        received = sent.detach().clone().requires_grad_()
        output = server(received)
        F.cross_entropy(output.reshape(-1, 5), labels).backward()
        if sent.requires_grad:  # a fixed stem alone has nothing to learn
            sent.backward(received.grad)
        assert tuple(sent.shape[1:]) == point.shape, point.name
        assert torch.equal(output, expected), point.name
        assert all(torch.equal(p.grad, gradients[n]) for n, p in model.named_parameters())
        merged = {**client.state_dict(), **server.state_dict()}
        assert merged.keys() == whole.state_dict().keys()
        assert len(merged) == len(client.state_dict()) + len(server.state_dict())
        assert all(torch.equal(merged[n], t) for n, t in whole.state_dict().items()), point.name


PAPER_MAPS = [
    ("vgg19", 32, "shallow", (64, 16, 16)),
    ("vgg19", 32, "medium", (256, 4, 4)),
    ("vgg19", 32, "deep", (512, 2, 2)),
    ("resnet18", 32, "shallow", (64, 32, 32)),
    ("resnet18", 32, "medium", (128, 16, 16)),
    ("resnet18", 32, "deep", (256, 8, 8)),
    ("resnet34", 224, "shallow", (64, 56, 56)),
    ("resnet34", 224, "medium", (128, 28, 28)),
    ("resnet34", 224, "deep", (256, 14, 14)),
]


@pytest.mark.parametrize(("name", "size", "at", "shape"), PAPER_MAPS)
def test_maps_at_the_papers_cuts(name: str, size: int, at: str, shape: tuple[int, ...]) -> None:
    with torch.device("meta"):  # full width at no cost: only shapes are computed
        model = build(name, classes=10, image_size=size)
        client, _ = cut(model, at=cut_module(name, at))
        assert tuple(client(torch.empty(2, 3, size, size)).shape) == (2, *shape)


PAPER_LAYERS = {"vgg19": (2, 8, 15), "resnet18": (2, 9, 13), "resnet34": (2, 15, 27)}


@pytest.mark.parametrize("name", PAPER_LAYERS)
def test_named_cuts_count_weight_layers(name: str) -> None:
    """A cut is the first boundary at or after the paper's layer; shortcuts are not layers."""
    model, _ = small(name)
    for at, layer in zip(Cuts._fields, PAPER_LAYERS[name], strict=True):
        client, _ = cut(model, at=cut_module(name, at))
        layers = sum(isinstance(m, nn.Conv2d) and "downsample" not in n for n, m in client.named_modules())
        assert layers == layer + (0 if name == "vgg19" else (layer + 1) % 2)


def test_tiny_cuts() -> None:
    model = build("tiny", classes=10, in_channels=1, image_size=8)
    points = {p.name: p.shape for p in cut_points(model, torch.zeros(1, 1, 8, 8))}
    shapes = [points[cut_module("tiny", at)] for at in Cuts._fields]
    assert shapes == [(64, 8, 8), (64, 4, 4), (128, 4, 4)]


def test_airbench_shares_the_gradient_of_a_largest_value_among_places_that_tie() -> None:
    pool = build("airbench", classes=10, width=4).get_submodule("maxpool")
    x = torch.tensor([[[[0.0, 2.0], [2.0, 1.0]], [[3.0, 0.0], [1.0, 2.0]]]], requires_grad=True)
    pooled = pool(x)
    assert pooled.tolist() == [[[[2.0]], [[3.0]]]]
    pooled.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[[[0.0, 0.5], [0.5, 0.0]], [[1.0, 0.0], [0.0, 0.0]]]]


def test_airbench_cuts_and_stem() -> None:
    model = build("airbench", classes=10, width=4)
    points = {p.name: p.shape for p in cut_points(model, torch.zeros(1, 3, 32, 32))}
    shapes = [points[cut_module("airbench", at)] for at in Cuts._fields]
    assert shapes == [(4, 15, 15), (16, 7, 7), (16, 3, 3)]
    filters = model.get_buffer("stem.weight")
    assert torch.equal(filters[12:], -filters[:12])
    products = filters[:12].flatten(1) @ filters[:12].flatten(1).T
    assert torch.allclose(products, torch.diag(products.diagonal()), atol=1e-4), "orthogonal directions"
    assert "stem.weight" not in dict(model.named_parameters()), "the stem is not trained"
    grey = build("airbench", classes=10, width=4, in_channels=1, image_size=16)
    assert grey.get_buffer("stem.weight").shape == (8, 1, 2, 2)


# Known sizes of the models in the literature, with 10 classes (VGG19, ResNet18) and 1000.
@pytest.mark.parametrize(
    ("name", "size", "classes", "parameters"),
    [
        ("vgg19", 32, 10, 20_035_018),
        ("resnet18", 32, 10, 11_173_962),
        ("resnet18", 224, 1000, 11_689_512),
        ("resnet34", 224, 1000, 21_797_672),
    ],
)
def test_parameter_counts(name: str, size: int, classes: int, parameters: int) -> None:
    with torch.device("meta"):
        model = build(name, classes=classes, image_size=size)
    assert sum(p.numel() for p in model.parameters()) == parameters


def test_resnet_names_are_the_usual_ones() -> None:
    names = build("resnet18", classes=10, width=4).state_dict().keys()
    assert {"conv1.weight", "bn1.running_var", "layer2.0.downsample.0.weight", "fc.bias"} <= names
    assert "layer1.0.downsample.0.weight" not in names


@pytest.mark.parametrize("name", MODELS)
def test_u_shape_keeps_the_last_layer(name: str) -> None:
    model, x = small(name)
    head, body, tail = (p.eval() for p in cut(model, at=(cut_module(name, "medium"), "fc")))
    assert list(tail.state_dict()) == [n for n in model.state_dict() if n.startswith("fc.")]
    with torch.no_grad():
        assert torch.equal(tail(body(head(x))), model(x))


def test_options_of_transformers() -> None:
    model = build("gpt", classes=7, vocabulary=9, width=8, context=4, options={"blocks": 2, "heads": 2})
    assert model.get_parameter("embedding.token.weight").shape == (9, 8)
    assert [name for name, _ in model.named_children()] == ["embedding", "block1", "block2", "norm", "fc"]
    assert model(torch.zeros(3, 4, dtype=torch.int64)).shape == (3, 4, 7)
    with pytest.raises(ModelError, match=r"model.blocks: tiny has no such option; it has none"):
        build("tiny", classes=2, options={"blocks": 2})
    with pytest.raises(ModelError, match="width of 8 cannot be shared by 3 heads"):
        build("gpt", classes=7, width=8, context=4, options={"heads": 3})
    with pytest.raises(ModelError, match="no whole patches of 5"):
        build("vit", classes=7, width=8, image_size=8, options={"patch": 5})


def test_gpt_does_not_look_ahead() -> None:
    model, x = small("gpt")
    other = x.clone()
    other[:, -1] = (x[:, -1] + 1) % 5
    assert torch.equal(model(x)[:, :-1], model(other)[:, :-1])
    assert not torch.equal(model(x)[:, -1], model(other)[:, -1])


def test_seed_alone_decides_the_weights() -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    a = build("tiny", classes=10, seed=3).state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(6)
    b = build("tiny", classes=10, seed=3).state_dict()
    c = build("tiny", classes=10, seed=4).state_dict()
    assert all(torch.equal(a[n], b[n]) for n in a)
    assert not torch.equal(a["fc.weight"], c["fc.weight"])


def test_he_initialisation() -> None:
    model = build("resnet18", classes=10, width=32)
    weight = model.get_parameter("layer4.1.conv2.weight")
    assert weight.std().item() == pytest.approx((2 / (256 * 9)) ** 0.5, rel=0.02)
    assert torch.equal(model.get_parameter("bn1.weight"), torch.ones(32))
    assert torch.equal(model.get_parameter("bn1.bias"), torch.zeros(32))
    assert torch.equal(model.get_parameter("fc.bias"), torch.zeros(10))


def test_tiny_learns_in_seconds() -> None:
    model = build("tiny", classes=2, width=8, in_channels=1, image_size=8)
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(64) % 2
    x = torch.randn(64, 1, 8, 8, generator=generator)
    x[labels == 1, :, :4] += 1.0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(20):
        optimizer.zero_grad()
        F.cross_entropy(model(x), labels).backward()
        optimizer.step()
    assert (model(x).argmax(1) == labels).float().mean() > 0.95


def test_unknown_model_suggests_the_nearest() -> None:
    with pytest.raises(ModelError, match=r"no model 'resnet81'\. Did you mean 'resnet18'\?.*tiny"):
        build("resnet81", classes=10)


@pytest.mark.parametrize(
    "settings", [{"classes": 0}, {"width": -1}, {"in_channels": 1.5}, {"image_size": True}]
)
def test_impossible_settings(settings: dict[str, int]) -> None:
    with pytest.raises(ModelError, match=f"{next(iter(settings))}=.*at least 1"):
        build("tiny", **{"classes": 10, **settings})


def test_image_too_small() -> None:
    with pytest.raises(ModelError, match="vgg19 needs images of at least 32 pixels a side, not 8"):
        build("vgg19", classes=10, image_size=8)


def test_cut_module_passes_module_names_through() -> None:
    assert cut_module("resnet18", "layer1.1") == "layer1.1"
    assert cut_module("my.package:net", "encoder") == "encoder"
    with pytest.raises(ModelError, match="has no cut 'deep'"):
        cut_module("my.package:net", "deep")
