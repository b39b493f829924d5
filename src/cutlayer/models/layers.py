"""What the built-in models share: a convolution layer and the initialisation of weights."""

from collections import OrderedDict

from torch import nn


def conv_layer(channels_in: int, channels_out: int, *, pool: bool = False) -> nn.Sequential:
    """A 3x3 convolution with batch norm and ReLU, and 2x2 max pooling behind it where asked.

    Pooling belongs to the layer, so that a cut behind the layer sends the small map.
    """
    modules: OrderedDict[str, nn.Module] = OrderedDict(
        conv=nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False),
        bn=nn.BatchNorm2d(channels_out),
        relu=nn.ReLU(inplace=True),
    )
    if pool:
        modules["pool"] = nn.MaxPool2d(2)
    return nn.Sequential(modules)


def initialise(model: nn.Module) -> None:
    """He initialisation: keeps the variance through ReLUs. Batch norms begin as 1 and 0."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
