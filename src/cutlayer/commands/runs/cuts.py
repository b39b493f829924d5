"""`cutlayer cuts`: where a model can be cut, and what each cut costs."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutlayer.commands import show
from cutlayer.commands.options import AsJson, Flag
from cutlayer.commands.runs.model_check import build_for, example, usual_input
from cutlayer.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from cutlayer.codecs import Codec
    from cutlayer.split import CutPoint

ModelWidth = Annotated[
    int, Flag("--width", help="channels of the first layer; the paper's models have 64", min=1)
]
ModelClasses = Annotated[int, Flag("--classes", help="number of classes", min=1)]
InputShape = Annotated[str | None, Flag("--input", help="shape of one sample, as 3x32x32", metavar="CxHxW")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("cuts")(cuts)


def cuts(
    model: Annotated[
        str,
        typer.Argument(
            help="vgg19, resnet18, resnet34, tiny, mlp, gpt, vit or package.module:factory", metavar="MODEL"
        ),
    ],
    codec_spec: Annotated[
        str | None, Flag("--codec", help="also show the bytes under this codec", metavar="SPEC")
    ] = None,
    shape: InputShape = None,
    width: ModelWidth = 64,
    classes: ModelClasses = 10,
    batch: Annotated[int, Flag(help="samples a frame, for the bytes under the codec", min=1)] = 32,
    as_json: AsJson = False,
) -> None:
    """List every valid cut of a model, and what each one costs.

    A row has the tensors that cross the cut, and the parameters and
    multiply-adds on each side. If several cross, those beside the output
    of the named module stand with their names.

    \b
    Examples:
      cutlayer cuts resnet18
      cutlayer cuts vgg19 --codec ms:ratio=0.99,bits=2
      cutlayer cuts mypackage.nets:make --input 3x64x64 --json
    """
    from cutlayer.codecs import codec
    from cutlayer.split import cut_points

    sample = sample_shape(model, shape)
    built = build_for(model, sample, width, classes)
    chosen = codec(codec_spec) if codec_spec else None
    # Models of the transformers package say themselves what they take.
    own = shape is None and hasattr(built, "main_input_name")
    points = cut_points(meta(built), None if own else example(model, sample, device="meta"))
    signed = _signed(built, points, example(model, sample)) if chosen is not None and not own else {}
    rows = [_row(point, model, chosen, batch, signed.get(point.name, True)) for point in points]
    if as_json:
        show.print_json(rows)
        return
    text: dict[str, Callable[[dict[str, Any]], str]] = {
        "cut": lambda row: f"{row['cut']} ({row['name']})" if row["name"] else row["cut"],
        "shape": _tensors,
        "raw bytes": lambda row: f"{row['raw_bytes']:,}",
        **({"under codec": lambda row: f"{row['codec_bytes']:,.0f}"} if chosen else {}),
        "client parameters": lambda row: show.count(row["client_parameters"]),
        "server parameters": lambda row: show.count(row["server_parameters"]),
        "client madds": lambda row: show.count(row["client_madds"]),
        "server madds": lambda row: show.count(row["server_madds"]),
    }
    title = f"{model}, width {width}, input {'x'.join(map(str, sample))}: per sample"
    if own:
        title = f"{model}, inputs by its configuration: per sample"
    if chosen is not None:
        title += f", under {chosen} in frames of {batch} (at most 64 bytes of header each not counted)"
    cells = [[cell(row) for cell in text.values()] for row in rows]
    show.console().print(show.table(title, list(text), cells, text=2))


def sample_shape(model: str, text: str | None) -> tuple[int, ...]:
    """The shape of one sample: as given, or what the paper feeds the model."""
    if not text:
        return usual_input(model)
    pieces = text.lower().split("x")
    if not all(piece.isdecimal() and int(piece) > 0 for piece in pieces):
        raise ModelError(f"--input {text!r} is not a shape; write it as 3x32x32")
    return tuple(int(piece) for piece in pieces)


def meta(model: nn.Module) -> nn.Module:
    """A copy of the model without values, for which shapes and counts cost no time."""
    return copy.deepcopy(model).to("meta")


def _signed(model: nn.Module, points: list[CutPoint], sample: Tensor) -> dict[str, bool]:
    """Which cuts carry negative values, which cost codecs a bit more: seen on one random sample."""
    import torch

    found: dict[str, bool] = {}
    modules = dict(model.named_modules())

    def watch(name: str) -> Any:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            found[name] = not isinstance(output, torch.Tensor) or bool((output < 0).any())

        return hook

    for point in points:
        modules[point.name].register_forward_hook(watch(point.name))
    with torch.no_grad():
        model.eval()(sample)
    return found


def _tensors(row: dict[str, Any]) -> str:
    main = "x".join(map(str, row["shape"]))
    others = (f"{t['name']} {'x'.join(map(str, t['shape']))}" for t in row["others"])
    return " + ".join([main, *others])


def _row(point: CutPoint, model: str, chosen: Codec | None, batch: int, signed: bool) -> dict[str, Any]:
    from cutlayer import models

    named = models.MODELS[model].cuts._asdict() if model in models.MODELS else {}
    row: dict[str, Any] = {
        "cut": point.name,
        "name": next((name for name, module in named.items() if module == point.name), None),
        "shape": list(point.shape),
        "elements": point.elements,
        "others": [
            {"name": t.name, "shape": list(t.shape), "dtype": str(t.dtype).removeprefix("torch.")}
            for t in point.others
        ],
        "raw_bytes": point.raw_bytes,
        "client_parameters": point.client_parameters,
        "server_parameters": point.server_parameters,
        "client_madds": point.client_madds,
        "server_madds": point.server_madds,
    }
    if chosen is not None:
        payload = chosen.payload_bytes((batch, *point.shape), signed)
        for tensor in point.others:
            # Integers are mostly masks, of which an element takes a bit.
            shape = (batch, *tensor.shape)
            floating = tensor.dtype.is_floating_point
            payload += chosen.payload_bytes(shape, True) if floating else math.ceil(math.prod(shape) / 8)
        row |= {"codec": str(chosen), "codec_bytes": payload / batch, "signed": signed}
    return row
