"""`cutlayer export`: a trained model, or one side of it, as a plain state dict or as ONNX for devices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from cutlayer.commands import show
from cutlayer.commands.ask import may_replace
from cutlayer.commands.options import Checkpoint, Flag, Overwrite
from cutlayer.errors import ConfigError
from cutlayer.imports import need

Format = Literal["safetensors", "onnx", "onnx-training"]
_NAMES = {"safetensors": "model.safetensors", "onnx": "device.onnx", "onnx-training": "client.onnx"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("export")(export)


def export(
    run: Annotated[
        str,
        typer.Argument(
            help="the directory of a run; for onnx-training a configuration: a .toml file, a recipe or a run",
            metavar="RUN",
        ),
    ],
    part: Annotated[
        Literal["whole", "client", "server"], Flag(help="whole, client or server: which half", metavar="PART")
    ] = "whole",
    out: Annotated[Path | None, Flag(help="the file to write; by default named for the format")] = None,
    checkpoint: Checkpoint = "last",
    format_: Annotated[
        Format,
        Flag(
            "--format",
            help="safetensors: a state dict; onnx, onnx-training: the client's half to predict or train",
            metavar="FORMAT",
        ),
    ] = "safetensors",
    int8: Annotated[
        bool, Flag("--int8", help="onnx: 8-bit weights and activations, a little less exact")
    ] = False,
    root: Annotated[Path | None, Flag(help="the folder of data sets that are given by name")] = None,
    shape: Annotated[
        str | None, Flag(help="onnx-training: the shape of samples, if the data are not here, as 3,32,32")
    ] = None,
    classes: Annotated[
        str | None,
        Flag(help="onnx-training: how many classes, or their names, with --shape", metavar="N or A,B,C"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        Flag("--set", help="onnx-training: change a setting, as train.clients=2", metavar="KEY=VALUE"),
    ] = None,
    force: Overwrite = False,
) -> None:
    """Write a trained model, or one half, as a safetensors file or as ONNX.

    A safetensors file is a plain state dict. Names are those of the whole
    model, so either half loads into it. The data are not needed. A file that
    exists is replaced only if you say so. In Python:

    \b
      state = safetensors.torch.load_file("model.safetensors")
      model.load_state_dict(state)

    An ONNX file is the client's half for a device without PyTorch, with its
    pre-processing and codec: for `cutlayer predict`, or, from a configuration,
    for `cutlayer join --half`.

    \b
    Examples:
      cutlayer export runs/ms
      cutlayer export runs/ms --part client --out device.safetensors
      cutlayer export runs/ms --checkpoint best --part server
      cutlayer export runs/ms --part client --format onnx --int8
      cutlayer export run.toml --part client --format onnx-training
    """
    need("pydantic", "reading a run")
    need("torch", "exporting a model")
    target = out or Path(_NAMES[format_])
    if format_ != "safetensors" and part != "client":
        raise ConfigError(f"--format {format_} is for the client's half: give --part client")
    if int8 and format_ != "onnx":
        raise ConfigError("--int8 is for predictions on a device: give --format onnx")
    if not force:
        may_replace(target)
    if format_ == "onnx-training":
        _training(run, target, root, shape, classes, settings or [])
        return
    if shape or classes or settings:
        raise ConfigError("--shape, --classes and --set are for --format onnx-training")
    from cutlayer.training.load_run import open_run

    trained = open_run(run, checkpoint, lambda text: show.say(text, stderr=True))
    if format_ == "onnx":
        from cutlayer.onnx_export.sources import export_run

        half = export_run(trained, target, int8=int8, root=root)
        said = f"client half of step {trained.step} as ONNX, {show.size(target.stat().st_size)}"
        show.say(f"{target}: {said}{', INT8' if int8 else ''}, codec {half.up}, digest {half.digest[:12]}")
        return
    from cutlayer.inference import export as exporting

    tensors = exporting.export(trained, target, part)
    numbers = sum(tensor.numel() for tensor in tensors.values())
    show.say(
        f"{target}: {part} model of step {trained.step}, {len(tensors)} tensors, "
        f"{show.count(numbers)} numbers"
    )


def _training(
    source: str, target: Path, root: Path | None, shape: str | None, classes: str | None, settings: list[str]
) -> None:
    """Export the client's half of a configuration."""
    from cutlayer.onnx_export.sources import configuration
    from cutlayer.onnx_export.training_half import export_training

    if target.suffix != ".onnx":
        raise ConfigError(f"{target}: an ONNX half is an .onnx file; give it that name")
    found = export_training(*configuration(source, settings, root, shape, classes), target)
    show.say(
        f"{target}: client half for training as ONNX, {show.size(found['bytes'])}, "
        f"{show.count(found['weights'])} weights, {found['operators']} operators"
    )
