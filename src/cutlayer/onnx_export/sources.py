"""What is exported: a run with samples for INT8, or a configuration with what its data look like."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from cutlayer.config.resolve import resolve_config
from cutlayer.config.schema import Config
from cutlayer.data import load
from cutlayer.data.spec import DATA_SPEC_FILE, DataSpec
from cutlayer.device.inference_half import OnnxHalf
from cutlayer.errors import ConfigError
from cutlayer.onnx_export.inference_half import export_onnx
from cutlayer.onnx_export.quantize import CALIBRATION, quantized
from cutlayer.protocol.build import load_settings, prepare_data
from cutlayer.training.load_run import Trained


def export_run(trained: Trained, path: Path, *, int8: bool = False, root: Path | None = None) -> OnnxHalf:
    """Export the client's half of a run. For INT8, samples of the run's training data are read."""
    if not int8:
        return export_onnx(trained, path)
    data = trained.config.data
    how = load_settings(trained.config)
    found = load(data.source, "train", root=root or data.root, limit=CALIBRATION, **how)
    if found.shape != trained.data_spec.shape:
        raise ConfigError(f"{data.source}: samples have another shape than those that the run was trained on")
    images = found.batch(torch.arange(len(found)))[0]
    if not isinstance(images, Tensor):
        raise ConfigError(f"{data.source}: samples of several tensors cannot be quantized for")
    samples = images.numpy()
    return export_onnx(trained, path, lambda graph: quantized(graph, samples))


def configuration(
    source: str,
    overrides: Sequence[str] = (),
    root: Path | None = None,
    shape: str | None = None,
    classes: str | None = None,
) -> tuple[Config, DataSpec]:
    """The settings of a file, a recipe or a run's directory, and what their data look like.

    Data that are not here are described by the shape of a sample and the number, or the names, of classes.
    """
    path = Path(source)
    flags = {} if root is None else {"data.root": str(root)}
    file = path / "config.toml" if path.is_dir() else path if path.suffix == ".toml" else None
    config = resolve_config(
        file, None if file else source, flags | {"output.dir": "unused"}, overrides, False
    )
    if shape is not None or classes is not None:
        return config, _described(config, shape, classes)
    if path.is_dir() and (path / DATA_SPEC_FILE).is_file():
        return config, DataSpec.read(path)
    return config, DataSpec.of(prepare_data(config))


def _described(config: Config, shape: str | None, classes: str | None) -> DataSpec:
    try:
        sizes = tuple(int(size) for size in (shape or "").split(","))
        names = (classes or "").split(",")
        count = int(names[0]) if len(names) == 1 else len(names)
    except ValueError:
        sizes, count = (), 0
    if not sizes or min(sizes) < 1 or count < 1:
        raise ConfigError(
            "give --shape and --classes together, as --shape 3,32,32 --classes 10 or --classes cat,dog"
        )
    pixels = len(sizes) == 3
    augment = "none" if config.data.augment == "auto" else config.data.augment
    # The server tells the statistics of the run before it begins.
    mean, std = ((value,) * sizes[0] for value in ((0.5, 0.25) if pixels else (0.0, 1.0)))
    return DataSpec(
        "custom", sizes, pixels, count, tuple(names) if len(names) > 1 else None, augment, mean, std, None, ()
    )
