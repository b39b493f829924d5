"""Options of the commands on tensors and frames."""

from pathlib import Path
from typing import Annotated

import typer

from cutlayer.commands.options import Flag

TensorFile = Annotated[Path, typer.Argument(help="a .npy or .safetensors file", metavar="TENSOR")]
FrameFile = Annotated[Path, typer.Argument(help="a frame, usually *.cut", metavar="FRAME")]
TensorName = Annotated[str | None, Flag("--tensor", help="which tensor of a .safetensors file")]
