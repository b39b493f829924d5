"""A small network that a CPU can train on CIFAR-10 to the end, after airbench (K. Jordan, 2024).

A fixed stem whitens 2x2 patches, so that training begins with decorrelated inputs. Three groups of two 3x3
convolutions follow, each of which pools inside, before batch norm and ReLU have to touch the large map.
Convolutions begin as the identity as far as they have channels for it, and biases learn faster than weights:
both make short training better.
"""

from collections import OrderedDict
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: The Haar basis of a 2x2 patch: mean, horizontal and vertical edge, diagonal.
_HAAR = (((1, 1), (1, 1)), ((1, -1), (1, -1)), ((1, 1), (-1, -1)), ((1, -1), (-1, 1)))

#: An orthogonal basis of colours: brightness, red against blue, green against both.
_COLOURS = ((1, 1, 1), (1, 0, -1), (1, -2, 1))

#: The standard deviation of these twelve responses on normalized images of CIFAR-10, colour by colour, and
#: at least that of noise. Such filters decorrelate natural images nearly as well as principal components do,
#: and need no data to be known.
_DEVIATIONS = (
    (3.16, 0.59, 0.64, 0.24),
    (0.85, 0.066, 0.077, 0.027),
    (0.42, 0.047, 0.052, 0.025),
)

_FEATURE_SCALE = 1 / 9

#: How much faster biases of batch norms learn than other weights, and the share of a batch in running
#: statistics: training is too short for slower ones.
_BIAS_RATE = 64
_MOMENTUM = 0.4


class WhiteningStem(nn.Module):
    """A fixed 2x2 convolution that decorrelates patches, and ReLU of its responses and of their negatives."""

    weight: Tensor

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        # A constant: no part of what clients average and checkpoints hold.
        self.register_buffer("weight", _whitening_filters(in_channels), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Eight channels for each channel of the images."""
        return F.relu(F.conv2d(x, self.weight), inplace=True)


class Scale(nn.Module):
    """Multiply by a constant: the last layer then learns more slowly than those before it."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """Compute factor * x."""
        return x * self.factor


class GlobalMaxPool(nn.Module):
    """The largest value of each channel, [N, C, 1, 1]. Places that tie for it share its gradient.

    At the deep cut this is the server's first layer, and what it gets is quantized: many places of a channel
    have the same largest value. `nn.AdaptiveMaxPool2d` would send the whole gradient to the first of them,
    wherever the largest value was before it was quantized. Without ties the two are the same.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Reduce height and width to one."""
        return x.amax((2, 3), keepdim=True)


class FastBiasBatchNorm2d(nn.BatchNorm2d):
    """A batch norm without weights, whose bias learns `_BIAS_RATE` times as fast as other parameters.

    The bias is a multiple of the parameter: with a factor f, SGD changes it f^2 times as much.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels, momentum=_MOMENTUM, affine=False)
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, input: Tensor) -> Tensor:
        """Normalize by the batch in training, by running statistics else, and add the bias."""
        bias = _BIAS_RATE**0.5 * self.bias
        mean, variance = self.running_mean, self.running_var
        return F.batch_norm(input, mean, variance, None, bias, self.training, _MOMENTUM, self.eps)


class Bfloat16Conv2d(nn.Conv2d):
    """A convolution that multiplies in bfloat16; its weights, their gradients and its output are float32.

    Processors with instructions for it take half the time. Others take longer than with float32.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Convolve."""
        low: Tensor = self._conv_forward(input.bfloat16(), self.weight.bfloat16(), None)
        return low.float()


def _airbench(
    conv: type[nn.Conv2d], *, classes: int, width: int, in_channels: int, image_size: int
) -> nn.Sequential:
    """The stem, `layer1` to `layer3` with width, 4 width and 4 width channels, and one linear layer."""
    modules: OrderedDict[str, nn.Module] = OrderedDict(
        stem=WhiteningStem(in_channels),
        layer1=_group(conv, 8 * in_channels, width),
        layer2=_group(conv, width, 4 * width),
        layer3=_group(conv, 4 * width, 4 * width),
        maxpool=GlobalMaxPool(),
        flatten=nn.Flatten(),
        scale=Scale(_FEATURE_SCALE),
        fc=nn.Linear(4 * width, classes),
    )
    model = nn.Sequential(modules)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            # The first outputs repeat the inputs, the others are random combinations.
            nn.init.dirac_(module.weight.data[: module.in_channels])
    return model


airbench = partial(_airbench, nn.Conv2d)
airbench_bf16 = partial(_airbench, Bfloat16Conv2d)


def _group(conv: type[nn.Conv2d], channels_in: int, channels_out: int) -> nn.Sequential:
    return nn.Sequential(
        OrderedDict[str, nn.Module](
            conv1=conv(channels_in, channels_out, 3, padding=1, bias=False),
            pool=nn.MaxPool2d(2),
            bn1=FastBiasBatchNorm2d(channels_out),
            relu1=nn.ReLU(inplace=True),
            conv2=conv(channels_out, channels_out, 3, padding=1, bias=False),
            bn2=FastBiasBatchNorm2d(channels_out),
            relu2=nn.ReLU(inplace=True),
        )
    )


def _whitening_filters(in_channels: int) -> Tensor:
    """The filters and their negatives, [8 * in_channels, in_channels, 2, 2]."""
    haar = torch.tensor(_HAAR, dtype=torch.float32) / 2
    if in_channels == len(_COLOURS):
        colours = torch.tensor(_COLOURS, dtype=torch.float32)
        colours /= torch.linalg.vector_norm(colours, dim=1, keepdim=True)
        deviations = torch.tensor(_DEVIATIONS)
    else:
        # Channels that are no colours: each by itself, as brightness.
        colours = torch.eye(in_channels)
        deviations = torch.tensor(_DEVIATIONS[:1]).expand(in_channels, -1)
    filters = torch.einsum("hij,kc->khcij", haar, colours) / deviations[:, :, None, None, None]
    filters = filters.flatten(0, 1)
    return torch.cat([filters, -filters])
