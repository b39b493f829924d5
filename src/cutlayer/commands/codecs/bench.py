"""`cutlayer bench`: which codec for my tensor?"""

from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.progress import track

from cutlayer.codecs import codec as parse
from cutlayer.codecs.kernels import dispatch as kernels
from cutlayer.commands import show
from cutlayer.commands.codecs.arrays import read_tensor
from cutlayer.tools.bench import DEFAULT_CODECS, Row, memcpy_seconds
from cutlayer.tools.bench import bench as measure
from cutlayer.tools.feature_map import digits_feature_map


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(bench)


def bench(
    codec: Annotated[list[str] | None, typer.Option(help="A codec to measure; may be repeated.")] = None,
    source: Annotated[
        Path | None,
        typer.Option("--input", help="A .npy or .safetensors file. Default: a feature map of digits."),
    ] = None,
    tensor: Annotated[str | None, typer.Option(help="Which tensor of a .safetensors file.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads for the codecs and for memcpy.")] = 1,
    seconds: Annotated[float, typer.Option(min=0.0, help="Time for each measurement.")] = 0.3,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Measure size, error and speed of codecs on the same tensor.

    Error is relative and squared, ||x - y||^2 / ||x||^2. Speeds count the tensor's float32 bytes, and the
    column x memcpy is their ratio to a plain copy of the tensor in the same run.

    Examples:  cutlayer bench   |   cutlayer bench --input features.npy --codec ms:bits=3 --codec qu:bits=4
    """
    chosen = [parse(spec) for spec in codec or DEFAULT_CODECS]
    x = read_tensor(source, tensor) if source else _example(as_json)
    torch.set_num_threads(threads)
    copy = memcpy_seconds(x.float())
    rows = [
        measure(c, x, copy=copy, seconds=seconds)
        for c in track(
            chosen, "measuring", console=show.console(stderr=True), transient=True, disable=as_json
        )
    ]
    about = {
        "input": source.name if source else "digits, tiny net, shallow cut, 3 epochs, seed 0",
        "shape": list(x.shape),
        "implementation": kernels.available()[0],
        "threads": threads,
        "memcpy_gbps": x.numel() * 4 / copy / 1e9,
    }
    if as_json:
        show.print_json({**about, "codecs": [row.as_dict() for row in rows]})
    else:
        _show(about, rows)


def _example(quiet: bool) -> torch.Tensor:
    if not quiet:
        typer.echo("training a small net on digits for a real feature map ...", err=True)
    return digits_feature_map()


def _show(about: dict[str, object], rows: list[Row]) -> None:
    columns = [
        "codec",
        "bits/elem",
        "bytes",
        "error",
        "cosine",
        "enc GB/s",
        "x memcpy",
        "dec GB/s",
        "x memcpy",
    ]
    cells = [
        [
            r.codec,
            f"{r.bits_per_element:.2f}",
            f"{r.bytes:,}",
            f"{r.error:.4f}",
            f"{r.cosine:.4f}",
            f"{r.encode_gbps:.2f}",
            f"{r.encode_ratio:.2f}",
            f"{r.decode_gbps:.2f}",
            f"{r.decode_ratio:.2f}",
        ]
        for r in rows
    ]
    out = show.console()
    out.print(
        show.table(
            f"{about['input']}: {about['shape']} float32", [c.replace("_", " ") for c in columns], cells
        )
    )
    speed = f"memcpy {about['memcpy_gbps']:.1f} GB/s"
    out.print(f"{about['implementation']} kernels, {about['threads']} thread(s), {speed}")
