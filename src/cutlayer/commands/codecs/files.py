"""`cutlayer encode`, `decode` and `inspect`: frames in files."""

from pathlib import Path
from typing import Annotated

import typer

from cutlayer.codecs import codec as parse
from cutlayer.codecs import decode as decode_frame
from cutlayer.codecs import inspect as inspect_frame
from cutlayer.codecs.frame import DEFAULT_LIMIT
from cutlayer.commands import show
from cutlayer.commands.codecs.arrays import read_bytes, read_tensor, write_safely, write_tensor
from cutlayer.split import relative_error

Force = Annotated[bool, typer.Option("--force", help="Replace the output file if it exists.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(encode)
    app.command()(decode)
    app.command()(inspect)


def encode(
    source: Annotated[Path, typer.Argument(help="A .npy or .safetensors file.")],
    target: Annotated[Path, typer.Argument(help="Where the frame goes, usually *.cut.")],
    codec: Annotated[str, typer.Option(help="The codec; `cutlayer codecs` lists them.")] = "ems:bpe=1.0",
    tensor: Annotated[str | None, typer.Option(help="Which tensor of a .safetensors file.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of random codecs.")] = None,
    force: Force = False,
) -> None:
    """Encode a tensor from a file as a frame.

    Example:  cutlayer encode features.npy features.cut --codec ms:ratio=0.99,bits=2
    """
    chosen = parse(codec)
    x = read_tensor(source, tensor)
    frame = chosen.encode(x, seed=seed)
    write_safely(target, lambda path: path.write_bytes(frame), force=force)
    raw, error = x.numel() * x.element_size(), relative_error(x, decode_frame(frame, max_elements=x.numel()))
    smaller = f"{raw / len(frame):.1f} times smaller"
    typer.echo(f"{target}: {len(frame):,} bytes, {smaller}, relative squared error {error:.4g}")


def decode(
    source: Annotated[Path, typer.Argument(help="A frame.")],
    target: Annotated[Path, typer.Argument(help="A .npy or .safetensors file.")],
    max_elements: Annotated[int, typer.Option(help="Refuse frames that claim more.")] = DEFAULT_LIMIT,
    force: Force = False,
) -> None:
    """Decode a frame into a file.

    Example:  cutlayer decode features.cut features.npy
    """
    x = decode_frame(read_bytes(source), max_elements=max_elements)
    write_tensor(target, x, force=force)
    typer.echo(f"{target}: {tuple(x.shape)} {str(x.dtype).removeprefix('torch.')}")


def inspect(
    source: Annotated[Path, typer.Argument(help="A frame.")],
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Show what a frame says about itself, without decoding it.

    Example:  cutlayer inspect features.cut
    """
    info = inspect_frame(read_bytes(source))
    rows = {
        "codec": info.codec,
        "shape": list(info.shape),
        "dtype": str(info.dtype).removeprefix("torch."),
        "signed": info.signed,
        "header_bytes": info.header_bytes,
        "payload_bytes": info.payload_bytes,
        "bits_per_element": round(info.bits_per_element, 4),
        "format_version": info.version,
    }
    if as_json:
        show.print_json(rows)
        return
    for name, value in rows.items():
        typer.echo(f"{name.replace('_', ' '):18}{value}")
