"""The trained models of an experiment, and their feature maps of real images.

A model is trained once, without compression, as an ordinary run under `<out>/models/`, and resumed if it
was interrupted. Its feature maps are those of images that it was not trained on, in evaluation mode.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from cutlayer.config.schema import Config, from_mapping
from cutlayer.data import load
from cutlayer.data.load_options import Split
from cutlayer.errors import CutlayerError
from cutlayer.models import cut_module
from cutlayer.reproduce.experiment import Request
from cutlayer.reproduce.scales import IMAGE_SETS, MODELS, ImageSet
from cutlayer.split import Part, cut
from cutlayer.training.load_run import Trained, open_run
from cutlayer.training.progress_bar import ProgressBar
from cutlayer.training.records import read
from cutlayer.training.train import train

CUTS = ("shallow", "medium", "deep")


def prepare(request: Request, sets: Iterable[ImageSet], bar: ProgressBar) -> None:
    """Train the models of the image sets that are not there yet."""
    for key in dict.fromkeys(s.trained_on for s in sets):
        settled = settings(request, key)
        if _finished(settled):
            continue
        bar.line(f"training {key} without compression: {settled.train.epochs} epochs, once, kept for later")
        result = train(settled, resume=True)
        accuracy = f"{result.scored.metrics['accuracy']:.1%}" if result.scored else "unknown"
        bar.line(f"trained {key} in {result.seconds:.0f} s: test accuracy {accuracy}")


def settings(request: Request, key: str) -> Config:
    """The run that trains a model."""
    found = copy.deepcopy(MODELS[key])
    source = found["data"]["source"]
    place = request.root / source
    found["data"] |= {"source": str(place) if place.exists() else source, "root": str(request.root)}
    found["model"].setdefault("cut", "medium")
    directory = request.out / "models" / f"{key}-seed{request.seed}"
    found |= {"seed": request.seed, "output": {"dir": str(directory), "keep": 1, "tensorboard": False}}
    return from_mapping(found, key)


def image_set(request: Request, name: str) -> ImageSet:
    """An image set of the request's scale, by name."""
    return next(s for s in IMAGE_SETS[request.scale] if s.name == name)


@lru_cache(maxsize=1)
def _open(directory: Path) -> Trained:
    return open_run(directory)


def trained(request: Request, images: ImageSet) -> Trained:
    """The trained model of an image set, in evaluation mode. Cut a copy, or do not change it."""
    return _open(Path(settings(request, images.trained_on).output.dir))


def parts(request: Request, images: ImageSet, at: str) -> tuple[Part, Part]:
    """The trained model, cut at a named cut, in evaluation mode."""
    found = trained(request, images)
    client, server = cut(copy.deepcopy(found.model), cut_module(found.config.model.name, at))
    client.eval()
    server.eval()
    return client, server


@lru_cache(maxsize=1)
def batches(
    request: Request, images: ImageSet, split: Split, count: int, size: int
) -> tuple[tuple[Tensor, Tensor], ...]:
    """Normalized images and labels, chosen by the seed."""
    found = trained(request, images)
    data = load(
        images.place(request.root),
        split,
        root=request.root,
        size=images.size or (found.data_spec.shape[-1] if found.data_spec.pixels else None),
        channels=found.data_spec.shape[0],
        limit=images.limit,
    )
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(request.seed))
    if len(order) < count * size:
        order = order.repeat(-(-count * size // len(order)))
    prepare_images = found.data_spec.preprocess().test
    chosen = torch.split(order[: count * size], size)
    found_batches = []
    for indices in chosen:
        inputs, labels = data.batch(indices)
        if not isinstance(inputs, Tensor):
            raise TypeError("images are single tensors")
        found_batches.append((prepare_images(inputs), labels))
    return tuple(found_batches)


@lru_cache(maxsize=1)
def features(request: Request, images: ImageSet, at: str) -> tuple[Tensor, ...]:
    """The feature maps of a few batches at a cut."""
    client, _ = parts(request, images, at)
    split: Split = "test" if images.labelled else "train"
    with torch.no_grad():
        return tuple(
            client(x).contiguous() for x, _ in batches(request, images, split, images.batches, images.batch)
        )


def _finished(settled: Config) -> bool:
    path = Path(settled.output.dir, "records.jsonl")
    try:
        found = [record for record in read(path) if record.get("kind") == "epoch"] if path.exists() else []
    except CutlayerError:
        return False
    return bool(found) and found[-1]["epoch"] == settled.train.epochs
