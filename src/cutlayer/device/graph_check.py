"""What an ONNX file of somebody else must not have: tensors in other files, and loops.

onnxruntime reads a tensor with external data from the file that it names, in the directory where the program
was started. A half could so take a private file for its weights and send it to its server as smashed data.
The file is walked here as protobuf, before onnxruntime sees it; a device need not have the package `onnx`.
"""

from __future__ import annotations

from collections.abc import Iterator

from cutlayer.errors import FileError

# Where messages stand in messages, by the numbers of onnx.proto.
_INSIDE: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "subgraph", 10: "tensor", 11: "subgraph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
# Of a tensor: the file that it is in, and whether it is in one.
_EXTERNAL = (13, 14)
_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5


def check_graph(data: bytes, where: str, how: str) -> None:
    """Raise FileError if a file is no protobuf, or has what a half of a model has no use for.

    `how` says how such a file is made.
    """
    try:
        _walk(memoryview(data), "model", where)
    except (IndexError, ValueError):
        raise FileError(f"{where}: is not an ONNX file, or is damaged; make it with: {how}") from None


def _walk(data: memoryview, kind: str, where: str) -> None:
    for number, value in _fields(data):
        if kind == "tensor" and number in _EXTERNAL and value != 0:
            raise FileError(
                f"{where}: a tensor of it is said to be in another file; nothing was read. A half has all of "
                "its weights in itself"
            )
        inside = _INSIDE[kind].get(number)
        if inside is not None and isinstance(value, memoryview):
            if inside == "subgraph":
                raise FileError(f"{where}: the graph has loops or branches, which no half of a model has")
            _walk(value, inside, where)


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """The fields of a message: their numbers, and what they hold. Raises if it is damaged."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, form = tag >> 3, tag & 7
        if form == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if form == _LENGTH:
            size, at = _varint(data, at)
        elif form in (_EIGHT, _FOUR):
            size = 8 if form == _EIGHT else 4
        else:
            raise ValueError("a group")
        if at + size > len(data):
            raise ValueError("a field that ends behind its message")
        yield number, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number of more than 64 bits")
