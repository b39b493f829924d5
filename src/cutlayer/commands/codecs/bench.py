"""`cutlayer bench`: which codec for my tensor?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutlayer.commands import show
from cutlayer.commands.codecs.options import TensorName
from cutlayer.commands.options import AsJson, Flag
from cutlayer.imports import need

if TYPE_CHECKING:
    from torch import Tensor

    from cutlayer.tools.bench import Row


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(bench)


def bench(
    codec: Annotated[
        list[str] | None, Flag(help="a codec to measure; may be repeated", metavar="SPEC")
    ] = None,
    source: Annotated[
        Path | None,
        Flag("--input", help="a .npy or .safetensors file; by default a feature map of digits"),
    ] = None,
    tensor: TensorName = None,
    threads: Annotated[int, Flag(min=1, help="threads of the codecs and of memcpy")] = 1,
    seconds: Annotated[float, Flag(min=0.0, help="seconds of each measurement")] = 0.3,
    as_json: AsJson = False,
) -> None:
    """Measure size, error and speed of codecs on the same tensor.

    The error is relative and squared, ||x - y||^2 / ||x||^2. Speeds count the
    tensor's float32 bytes. The column `x memcpy` is their ratio to a plain
    copy of the tensor in the same run.

    \b
    Examples:
      cutlayer bench
      cutlayer bench --input features.npy --codec ms:bits=3 --codec qu:bits=4
    """
    from rich.progress import track

    from cutlayer.codecs import codec as parse
    from cutlayer.codecs.kernels import dispatch as kernels
    from cutlayer.commands.codecs.arrays import read_tensor

    torch = need("torch", "measuring codecs")
    from cutlayer.tools.bench import DEFAULT_CODECS, memcpy_seconds
    from cutlayer.tools.bench import bench as measure

    chosen = [parse(spec) for spec in codec or DEFAULT_CODECS]
    x = torch.as_tensor(read_tensor(source, tensor)) if source else _example(as_json)
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


def _example(quiet: bool) -> Tensor:
    from cutlayer.tools.feature_map import digits_feature_map

    if not quiet:
        show.say("training a small model on digits for a real feature map ...", stderr=True)
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
    show.console().print(show.table(f"{about['input']}: {about['shape']} float32", columns, cells))
    speed = f"memcpy {about['memcpy_gbps']:.1f} GB/s"
    show.say(f"{about['implementation']} kernels, {about['threads']} thread(s), {speed}")
