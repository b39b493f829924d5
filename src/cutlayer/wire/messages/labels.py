"""Labels in as few bits as the number of classes needs: 10 classes take 4 bits a label."""

import numpy as np
import numpy.typing as npt

from cutlayer.errors import MessageError


def bits_per_label(classes: int) -> int:
    """ceil(log2(classes)), at least 1."""
    return max(1, (classes - 1).bit_length())


def pack(labels: npt.NDArray[np.int64], classes: int) -> bytes:
    """Labels 0..classes-1 as bytes, the lowest bit of the first label first."""
    bits = bits_per_label(classes)
    spread = (labels[:, None] >> np.arange(bits)) & 1
    return np.packbits(spread.astype(np.uint8).reshape(-1), bitorder="little").tobytes()


def unpack(packed: bytes, count: int, classes: int) -> npt.NDArray[np.int64]:
    """The labels in bytes from another party, checked: neither count nor values are believed."""
    bits = bits_per_label(classes)
    if len(packed) != (count * bits + 7) // 8:
        raise MessageError(
            f"{count} labels of {classes} classes take {(count * bits + 7) // 8} bytes, not {len(packed)}"
        )
    spread = np.unpackbits(np.frombuffer(packed, np.uint8), count=count * bits, bitorder="little")
    labels = spread.reshape(count, bits).astype(np.int64) @ (1 << np.arange(bits, dtype=np.int64))
    if count and int(labels.max()) >= classes:
        raise MessageError(f"a label is {int(labels.max())}; there are classes 0 to {classes - 1}")
    return labels
