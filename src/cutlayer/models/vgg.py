"""VGG19 with batch norm: 16 convolution layers in 5 stages, each stage ending in pooling."""

from collections import OrderedDict

from torch import nn

from cutlayer.models.layers import conv_layer

_STAGES = ((2, 1), (2, 2), (4, 4), (4, 8), (4, 8))  # layers, channels as multiples of the width


def vgg19(*, classes: int, width: int, in_channels: int, image_size: int) -> nn.Sequential:
    """`layer1` to `layer16`, then one linear layer, as is usual for CIFAR.

    The mean over what is left of the image lets larger images through as well.
    """
    modules: OrderedDict[str, nn.Module] = OrderedDict()
    channels = in_channels
    number = 0
    for layers, multiple in _STAGES:
        for i in range(layers):
            number += 1
            layer = conv_layer(channels, multiple * width, pool=i == layers - 1)
            modules[f"layer{number}"] = layer
            channels = multiple * width
    modules["avgpool"] = nn.AdaptiveAvgPool2d(1)
    modules["flatten"] = nn.Flatten()
    modules["fc"] = nn.Linear(channels, classes)
    return nn.Sequential(modules)
