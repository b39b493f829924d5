"""`cutlayer export`: a trained model, or one side of it, as a plain state dict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from cutlayer.commands import show
from cutlayer.commands.runs.evaluate import At
from cutlayer.imports import need


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("export")(export)


def export(
    run: Annotated[Path, typer.Argument(help="the directory of a run", metavar="RUN")],
    part: Annotated[Literal["whole", "client", "server"], typer.Option(help="which part")] = "whole",
    out: Annotated[Path, typer.Option(help="the file to write")] = Path("model.safetensors"),
    at: At = "last",
) -> None:
    """Write a trained model as a plain state dict in a safetensors file. The data are not needed.

    Names are those of the whole model, so either half loads into it. In Python:
    model.load_state_dict(safetensors.torch.load_file("model.safetensors"))

    \b
    Examples:
      cutlayer export runs/ms
      cutlayer export runs/ms --part client --out device.safetensors
      cutlayer export runs/ms --checkpoint best --part server --out server.safetensors
    """
    need("pydantic", "reading a run")
    from cutlayer.inference import export as exporting
    from cutlayer.training.load_run import open_run

    trained = open_run(run, at, lambda text: show.console(stderr=True).print(text))
    tensors = exporting.export(trained, out, part)
    numbers = sum(tensor.numel() for tensor in tensors.values())
    show.console().print(
        f"{out}: {part} model of step {trained.step}, {len(tensors)} tensors, {show.count(numbers)} numbers",
        soft_wrap=True,
    )
