"""`cutlayer encode`, `decode` and `inspect`: frames in files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from cutlayer.commands import show
from cutlayer.commands.codecs.options import FrameFile, TensorFile, TensorName
from cutlayer.commands.options import AsJson, Flag, Overwrite
from cutlayer.errors import FrameError


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(encode)
    app.command()(decode)
    app.command()(inspect)


def encode(
    source: TensorFile,
    target: FrameFile,
    codec: Annotated[str, Flag(help="the codec; `cutlayer codecs` lists them")] = "ems:bpe=1.0",
    tensor: TensorName = None,
    seed: Annotated[int | None, Flag(help="seed of random codecs")] = None,
    force: Overwrite = False,
) -> None:
    """Encode a tensor from a file as a frame.

    The frame tells its codec, shape and type: whoever has it can decode it.

    \b
    Example:
      cutlayer encode features.npy features.cut --codec ms:ratio=0.99,bits=2
    """
    from cutlayer.codecs import codec as parse
    from cutlayer.codecs import decode as decode_frame
    from cutlayer.codecs.tensors import count
    from cutlayer.commands.codecs.arrays import read_tensor, write_safely

    chosen = parse(codec)
    x = read_tensor(source, tensor)
    frame = chosen.encode(x, seed=seed)
    write_safely(target, lambda path: path.write_bytes(frame), force=force)
    raw, error = x.nbytes, _relative_error(x, decode_frame(frame, max_elements=count(x), like="numpy"))
    smaller = f"{raw / len(frame):.1f} times smaller"
    show.say(f"{target}: {len(frame):,} bytes, {smaller}, relative squared error {error:.4g}")


def _relative_error(x: Any, y: Any) -> float:
    """The squared error of `y`, relative to the energy of `x`."""
    import numpy as np

    from cutlayer.codecs.tensors import is_torch

    given = np.asarray(x.double() if is_torch(x) else x, np.float64)
    energy = float((given**2).sum())
    squared = float(((given - y) ** 2).sum())
    return squared / energy if energy else (0.0 if squared == 0 else float("inf"))


def decode(
    source: FrameFile,
    target: TensorFile,
    max_elements: Annotated[
        int | None, Flag(help="refuse frames with more elements; by default 2^28")
    ] = None,
    force: Overwrite = False,
) -> None:
    """Decode a frame into a file.

    The frame says how it was encoded. A damaged one is refused.

    \b
    Example:
      cutlayer decode features.cut features.npy
    """
    from cutlayer.codecs import decode as decode_frame
    from cutlayer.codecs.frame import DEFAULT_LIMIT
    from cutlayer.commands.codecs.arrays import read_bytes, write_tensor

    limit = DEFAULT_LIMIT if max_elements is None else max_elements
    data = read_bytes(source)
    with _named(source):
        x = decode_frame(data, max_elements=limit)
    write_tensor(target, x, force=force)
    show.say(f"{target}: {tuple(x.shape)} {str(x.dtype).removeprefix('torch.')}")


def inspect(
    source: FrameFile,
    as_json: AsJson = False,
) -> None:
    """Show the header of a frame without decoding it.

    Codec, shape, type and size, as the frame has them.

    \b
    Example:
      cutlayer inspect features.cut
    """
    from cutlayer.codecs import inspect as inspect_frame
    from cutlayer.commands.codecs.arrays import read_bytes

    data = read_bytes(source)
    with _named(source):
        info = inspect_frame(data)
    rows = {
        "codec": info.codec if info.known else f"{info.codec} (unknown here)",
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


@contextmanager
def _named(source: Path) -> Iterator[None]:
    """Say which file has the bytes that are no frame."""
    try:
        yield
    except FrameError as error:
        raise type(error)(f"{source}: {error}") from error
