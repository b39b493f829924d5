"""A small convolution net for small images such as 8x8 digits, which trains in seconds."""

from collections import OrderedDict

from torch import nn

from cutlayer.models.layers import conv_layer


def tiny(*, classes: int, width: int, in_channels: int, image_size: int) -> nn.Sequential:
    """Four convolution layers, two of them with pooling, and one linear layer."""
    modules: OrderedDict[str, nn.Module] = OrderedDict(
        layer1=conv_layer(in_channels, width),
        layer2=conv_layer(width, width, pool=True),
        layer3=conv_layer(width, 2 * width),
        layer4=conv_layer(2 * width, 2 * width, pool=True),
        avgpool=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
        fc=nn.Linear(2 * width, classes),
    )
    return nn.Sequential(modules)
