"""A real feature map for trying codecs: a small net trained for seconds on scikit-learn's digits."""

import torch
from torch import Tensor, nn

from cutlayer.data.formats.digits import load_digits
from cutlayer.data.load_options import LoadOptions
from cutlayer.models import build, cut_module
from cutlayer.split import cut


def digits_feature_map(*, cut_at: str = "shallow", epochs: int = 3, seed: int = 0) -> Tensor:
    """The feature map of all training images at a cut, after a short training of the whole model."""
    data = load_digits(LoadOptions())
    images = data.images.float().div_(255)
    channels, size = images.shape[1], images.shape[2]
    model = build("tiny", classes=data.classes, width=16, in_channels=channels, image_size=size, seed=seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for batch in torch.randperm(len(images), generator=generator).split(64):  # type: ignore[no-untyped-call]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[batch]), data.labels[batch])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    client, _ = cut(model, at=cut_module("tiny", cut_at))
    client.eval()
    with torch.no_grad():
        features: Tensor = client(images)
    return features.contiguous()
