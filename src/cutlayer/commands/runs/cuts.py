"""`cutlayer cuts`: where a model can be cut, and what each cut costs."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Annotated, Any

import torch
import typer
from torch import nn

from cutlayer import models
from cutlayer.codecs import Codec, codec
from cutlayer.commands import show
from cutlayer.errors import ModelError
from cutlayer.split import CutPoint, cut_points

# What the paper feeds the built-in models; others get CIFAR's shape.
_INPUTS = {"resnet34": "3x224x224", "tiny": "1x8x8"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("cuts")(cuts)


def cuts(
    model: Annotated[str, typer.Argument(help="vgg19, resnet18, resnet34, tiny, or package.module:factory")],
    codec_spec: Annotated[
        str | None, typer.Option("--codec", help="also show the bytes under this codec", metavar="SPEC")
    ] = None,
    shape: Annotated[
        str | None, typer.Option("--input", help="shape of one sample, as 3x32x32", metavar="CxHxW")
    ] = None,
    width: Annotated[int, typer.Option(help="channels at the beginning; 64 is the paper's model")] = 64,
    classes: Annotated[int, typer.Option(help="classes at the end")] = 10,
    batch: Annotated[int, typer.Option(help="samples a frame, for the bytes under the codec", min=1)] = 32,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False,
) -> None:
    """List every valid cut of a model: the tensor that crosses it, and the work on each side.

    \b
    Examples:
      cutlayer cuts resnet18
      cutlayer cuts vgg19 --codec ms:ratio=0.99,bits=2
      cutlayer cuts mypackage.nets:make --input 3x64x64 --json
    """
    sample = sample_shape(model, shape)
    built = build_for(model, sample, width, classes)
    chosen = codec(codec_spec) if codec_spec else None
    points = cut_points(meta(built), torch.zeros(1, *sample, device="meta"))
    signed = _signed(built, points, sample) if chosen is not None else {}
    rows = [_row(point, model, chosen, batch, signed.get(point.name, True)) for point in points]
    if as_json:
        show.print_json(rows)
        return
    text: dict[str, Callable[[dict[str, Any]], str]] = {
        "cut": lambda row: f"{row['cut']} ({row['name']})" if row["name"] else row["cut"],
        "shape": lambda row: "x".join(map(str, row["shape"])),
        "raw bytes": lambda row: f"{row['raw_bytes']:,}",
        **({"under codec": lambda row: f"{row['codec_bytes']:,.0f}"} if chosen else {}),
        "client parameters": lambda row: show.count(row["client_parameters"]),
        "server parameters": lambda row: show.count(row["server_parameters"]),
        "client madds": lambda row: show.count(row["client_madds"]),
        "server madds": lambda row: show.count(row["server_madds"]),
    }
    title = f"{model}, width {width}, input {'x'.join(map(str, sample))}: per sample"
    if chosen is not None:
        title += f", under {chosen} in frames of {batch} (at most 64 bytes of header each not counted)"
    cells = [[cell(row) for cell in text.values()] for row in rows]
    show.console().print(show.table(title, list(text), cells, text=2))


def sample_shape(model: str, text: str | None) -> tuple[int, ...]:
    """The shape of one sample: as given, or what the paper feeds the model."""
    text = text or _INPUTS.get(model, "3x32x32")
    pieces = text.lower().split("x")
    if not all(piece.isdecimal() and int(piece) > 0 for piece in pieces):
        raise ModelError(f"--input {text!r} is not a shape; write it as 3x32x32")
    return tuple(int(piece) for piece in pieces)


def build_for(model: str, sample: tuple[int, ...], width: int, classes: int) -> nn.Module:
    """A model for samples of that shape."""
    if len(sample) != 3:
        return models.build(model, classes=classes, width=width)
    return models.build(
        model, classes=classes, width=width, in_channels=sample[0], image_size=min(sample[1:])
    )


def meta(model: nn.Module) -> nn.Module:
    """The model without its values: shapes and counts need none, and big models then cost nothing."""
    return copy.deepcopy(model).to("meta")


def _signed(model: nn.Module, points: list[CutPoint], sample: tuple[int, ...]) -> dict[str, bool]:
    """Which cuts carry negative values, which cost codecs a bit more: seen on one random sample."""
    found: dict[str, bool] = {}
    modules = dict(model.named_modules())

    def watch(name: str) -> Any:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            found[name] = not isinstance(output, torch.Tensor) or bool((output < 0).any())

        return hook

    for point in points:
        modules[point.name].register_forward_hook(watch(point.name))
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model.eval()(torch.randn(1, *sample))
    return found


def _row(point: CutPoint, model: str, chosen: Codec | None, batch: int, signed: bool) -> dict[str, Any]:
    named = models.MODELS[model].cuts._asdict() if model in models.MODELS else {}
    row: dict[str, Any] = {
        "cut": point.name,
        "name": next((name for name, module in named.items() if module == point.name), None),
        "shape": list(point.shape),
        "elements": math.prod(point.shape),
        "raw_bytes": point.raw_bytes,
        "client_parameters": point.client_parameters,
        "server_parameters": point.server_parameters,
        "client_madds": point.client_madds,
        "server_madds": point.server_madds,
    }
    if chosen is not None:
        payload = chosen.payload_bytes((batch, *point.shape), signed)
        row |= {"codec": str(chosen), "codec_bytes": payload / batch, "signed": signed}
    return row
