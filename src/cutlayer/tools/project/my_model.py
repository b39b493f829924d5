"""A model of your own: a function that returns a torch.nn.Module.

cutlayer calls it with those of these arguments that it has: classes, width, in_channels, image_size.
"""

from torch import nn


def net(classes: int, in_channels: int) -> nn.Module:
    """A small convolutional network for images of 8 x 8 pixels."""
    return nn.Sequential(
        nn.Conv2d(in_channels, 16, 3, padding=1),  # "0"
        nn.ReLU(),  # "1": with cut = "1" the clients have everything up to here
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, classes),
    )
