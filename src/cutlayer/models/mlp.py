"""A multilayer perceptron for tables: linear layers with ReLU, and one linear layer at the end."""

from collections import OrderedDict

from torch import nn


def mlp(*, classes: int, width: int, in_channels: int, blocks: int = 3) -> nn.Sequential:
    """`layer1` to `layerN`, of `width` each, and `fc`. `in_channels` is the number of features."""
    modules: OrderedDict[str, nn.Module] = OrderedDict()
    features = in_channels
    for number in range(blocks):
        modules[f"layer{number + 1}"] = nn.Sequential(
            OrderedDict(linear=nn.Linear(features, width), relu=nn.ReLU())
        )
        features = width
    modules["fc"] = nn.Linear(features, classes)
    return nn.Sequential(modules)
