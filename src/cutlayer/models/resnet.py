"""ResNet18 and ResNet34: four stages of residual blocks behind a stem that suits the image size.

Parameters have the names that are usual for these models (`layer1.0.conv1.weight`), so published
weights load where the stem is the same.
"""

from collections import OrderedDict
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

_SMALL_IMAGE = 64  # up to this size the stem keeps the resolution


class Block(nn.Module):
    """Two 3x3 convolutions, added to their input; a 1x1 convolution fits the input where needed."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels_in != channels_out:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride, bias=False),
                nn.BatchNorm2d(channels_out),
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute relu(f(x) + x)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(y)).add_(shortcut), inplace=True)


def _resnet(
    blocks: tuple[int, ...], *, classes: int, width: int, in_channels: int, image_size: int
) -> nn.Sequential:
    small = image_size <= _SMALL_IMAGE
    modules: OrderedDict[str, nn.Module] = OrderedDict()
    if small:
        modules["conv1"] = nn.Conv2d(in_channels, width, 3, padding=1, bias=False)
    else:
        modules["conv1"] = nn.Conv2d(in_channels, width, 7, stride=2, padding=3, bias=False)
    modules["bn1"] = nn.BatchNorm2d(width)
    modules["relu"] = nn.ReLU(inplace=True)
    if not small:
        modules["maxpool"] = nn.MaxPool2d(3, stride=2, padding=1)
    channels = width
    for stage, count in enumerate(blocks):
        layer = nn.Sequential()
        for i in range(count):
            stride = 2 if stage > 0 and i == 0 else 1
            layer.append(Block(channels, width << stage, stride))
            channels = width << stage
        modules[f"layer{stage + 1}"] = layer
    modules["avgpool"] = nn.AdaptiveAvgPool2d(1)
    modules["flatten"] = nn.Flatten()
    modules["fc"] = nn.Linear(channels, classes)
    return nn.Sequential(modules)


resnet18 = partial(_resnet, (2, 2, 2, 2))
resnet34 = partial(_resnet, (3, 4, 6, 3))
