"""Feature maps of trained models at the three cuts, for benchmarks of codecs on real data.

    python benchmarks/maps.py --root ~/data --out maps

Trains a thin ResNet18 (width 16) in plain PyTorch for a few minutes on `cifar10` and on `tiny-imagenet-50`,
both Parquet folders under the root, and saves what the client's half gives for a batch of test images.
"""

import argparse
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from cutlayer.data import Augment, Dataset, load
from cutlayer.models import build, cut_module
from cutlayer.split import cut

CUTS = ("shallow", "medium", "deep")
# data set: (training images, epochs, images in the map)
DATA = {"cifar10": (25_000, 3, 256), "tiny-imagenet-50": (6_000, 2, 128)}


def trained(name: str, root: Path) -> dict[str, Tensor]:
    """Train on a part of the data set; the feature maps by cut."""
    limit, epochs, images = DATA[name]
    train, test = load(root / name, "train", limit=limit), load(root / name, "test", limit=4 * images)
    assert isinstance(train, Dataset)
    assert isinstance(test, Dataset)
    prepare, size = Augment.of(train), train.shape[-1]
    model = build("resnet18", classes=train.form.outputs, width=16, image_size=size, seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    generator = torch.Generator().manual_seed(0)
    steps = epochs * -(-len(train) // 128)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps)
    for epoch in range(epochs):
        for step, batch in enumerate(torch.randperm(len(train), generator=generator).split(128)):  # type: ignore[no-untyped-call]
            inputs, labels = train.batch(batch)
            x = prepare.train(inputs, seed=0, client=0, epoch=epoch, step=step)
            loss = nn.functional.cross_entropy(model(x), labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        print(f"{name}: epoch {epoch + 1} of {epochs}, loss {loss.item():.2f}", flush=True)
    model.eval()
    inputs, labels = test.batch(torch.arange(min(images, len(test))))
    x = prepare.test(inputs)
    with torch.no_grad():
        right = (model(x).argmax(1) == labels).float().mean()
        print(f"{name}: {100 * float(right):.0f} % of the {images} test images are told right")
        return {at: cut(model, at=cut_module("resnet18", at))[0].eval()(x).contiguous() for at in CUTS}


def feature_maps(root: Path, out: Path) -> dict[tuple[str, str], Tensor]:
    """The maps by data set and cut, from `out` if they are there."""
    maps = {}
    for name in DATA:
        saved = out / f"{name}.safetensors"
        if not saved.is_file():
            out.mkdir(parents=True, exist_ok=True)
            save_file(trained(name, root), saved)
        maps.update({(name, at): x for at, x in load_file(saved).items()})
    return {(name, at): maps[name, at] for name in DATA for at in CUTS}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, required=True, help="the folder with the data sets")
    parser.add_argument("--out", type=Path, default=Path("maps"), help="where maps are kept")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for (name, at), x in feature_maps(options.root, options.out).items():
        print(f"{name} {at}: {tuple(x.shape)}")
