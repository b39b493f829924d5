"""A small vision transformer: patches as tokens, blocks of attention and MLP, and the mean of all tokens."""

import math
from collections import OrderedDict

import torch
from torch import nn

from cutlayer.errors import ModelError
from cutlayer.models.transformer import Block, initialise_transformer


class Patches(nn.Module):
    """Images [N, C, H, W] to one vector a patch, [N, T, width], with learned positions."""

    def __init__(self, in_channels: int, width: int, patch: int, tokens: int) -> None:
        super().__init__()
        self.project = nn.Conv2d(in_channels, width, patch, stride=patch)
        self.position = nn.Parameter(torch.zeros(tokens, width))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """What a patch shows, and where it is."""
        found: torch.Tensor = self.project(images).flatten(2).transpose(1, 2) + self.position
        return found


class Pool(nn.Module):
    """The mean over tokens."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, T, width] to [N, width]."""
        return x.mean(1)


def vit(
    *,
    classes: int,
    width: int,
    in_channels: int,
    image_size: int,
    blocks: int = 6,
    heads: int = 4,
    patch: int = 4,
) -> nn.Sequential:
    """`patches`, `block1` to `blockN`, `norm`, `pool` and `fc`, in a row. Images are square."""
    if width % heads:
        raise ModelError(f"vit: a width of {width} cannot be shared by {heads} heads; give a multiple")
    if image_size % patch:
        raise ModelError(
            f"vit: images of side {image_size} have no whole patches of {patch}; set model.patch"
        )
    tokens = (image_size // patch) ** 2
    modules: OrderedDict[str, nn.Module] = OrderedDict(patches=Patches(in_channels, width, patch, tokens))
    for number in range(blocks):
        modules[f"block{number + 1}"] = Block(width, heads, causal=False)
    modules["norm"] = nn.LayerNorm(width)
    modules["pool"] = Pool()
    modules["fc"] = nn.Linear(width, classes)
    model = nn.Sequential(modules)
    initialise_transformer(model, residual=1 / math.sqrt(2 * blocks))
    return model
