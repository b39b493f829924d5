"""`cutlayer export`: a trained model, or one side of it, as a plain state dict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from cutlayer.commands import show
from cutlayer.commands.ask import may_replace
from cutlayer.commands.options import Checkpoint, Flag, Overwrite, RunArgument
from cutlayer.imports import need


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("export")(export)


def export(
    run: RunArgument,
    part: Annotated[
        Literal["whole", "client", "server"], Flag(help="the whole model, or one half")
    ] = "whole",
    out: Annotated[Path, Flag(help="the file to write")] = Path("model.safetensors"),
    checkpoint: Checkpoint = "last",
    force: Overwrite = False,
) -> None:
    """Write a trained model, or one half, as a safetensors file.

    The file is a plain state dict. Names are those of the whole model, so
    either half loads into it. The data are not needed. A file that exists is
    replaced only if you say so. In Python:

    \b
      state = safetensors.torch.load_file("model.safetensors")
      model.load_state_dict(state)

    \b
    Examples:
      cutlayer export runs/ms
      cutlayer export runs/ms --part client --out device.safetensors
      cutlayer export runs/ms --checkpoint best --part server
    """
    need("pydantic", "reading a run")
    if not force:
        may_replace(out)
    from cutlayer.inference import export as exporting
    from cutlayer.training.load_run import open_run

    trained = open_run(run, checkpoint, lambda text: show.say(text, stderr=True))
    tensors = exporting.export(trained, out, part)
    numbers = sum(tensor.numel() for tensor in tensors.values())
    show.say(
        f"{out}: {part} model of step {trained.step}, {len(tensors)} tensors, {show.count(numbers)} numbers"
    )
