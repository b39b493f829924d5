"""Images as arrays of pixels: opened with Pillow, scaled, and cut to the shape that a model takes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cutlayer.errors import DataError
from cutlayer.imports import need

Pixels = npt.NDArray[np.uint8]

#: How the names of image files end.
SUFFIXES = (".jpeg", ".jpg", ".png", ".bmp", ".webp", ".ppm")
GREY = {"1", "L"}
# Pillow would clip the 16- and 32-bit modes to a byte without a word.
_DEEP = ("I", "F")


def open_image(source: bytes | Path, where: str) -> Any:
    """Open an encoded image; `where` names it in errors."""
    pillow = need("PIL.Image", "decoding images")
    try:
        image = pillow.open(io.BytesIO(source if isinstance(source, bytes) else source.read_bytes()))
    except Exception as error:
        raise _damaged(where, error) from error
    if image.mode.startswith(_DEEP):
        raise DataError(f"{where}: pixels of mode {image.mode}; only 8-bit images are read")
    return image


def decode_image(row: Pixels, source: bytes | Path, where: str, size: int | None) -> None:
    """Decode an image into `row` [C, H, W]; with a `size`, scale it to that side and cut out the centre."""
    channels, height, width = row.shape
    image = open_image(source, where)
    if channels == 1 and image.mode not in GREY:
        raise DataError(f"{where}: a coloured image ({image.mode}) among grey ones; load with channels=3")
    if size is None and image.size != (width, height):
        raise DataError(
            f"{where}: {image.size[0]}x{image.size[1]} among images of {width}x{height}; "
            "give a size to scale all images to"
        )
    try:
        if size is not None and image.size != (size, size):
            # JPEG can decode at a fraction of its size, which is most of the time saved.
            image.draft("L" if channels == 1 else "RGB", (2 * size, 2 * size))
            image = _centre(image.convert("L" if channels == 1 else "RGB"), size)
        pixels = np.asarray(image.convert("L" if channels == 1 else "RGB"))
    except Exception as error:
        # Decoders raise whatever a damaged file makes them stumble over.
        raise _damaged(where, error) from error
    row[...] = pixels if channels == 1 else pixels.transpose(2, 0, 1)


def _centre(image: Any, size: int) -> Any:
    """Scale the shortest side to `size` and cut out the centre, as for ImageNet's validation."""
    width, height = image.size
    scale = size / min(width, height)
    wide, high = max(size, round(width * scale)), max(size, round(height * scale))
    left, top = (wide - size) // 2, (high - size) // 2
    bilinear = need("PIL.Image", "decoding images").Resampling.BILINEAR
    return image.resize((wide, high), bilinear).crop((left, top, left + size, top + size))


def _damaged(where: str, error: Exception) -> DataError:
    # Pillow's message for unknown formats shows a memory address and nothing else.
    reason = "unknown format" if type(error).__name__ == "UnidentifiedImageError" else error
    return DataError(f"{where}: cannot be decoded as an image ({reason}); replace or remove it")
