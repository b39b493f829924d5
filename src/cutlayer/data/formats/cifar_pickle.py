"""The Python files of CIFAR, which are pickles, read so that nothing in them can run.

A pickle is a program that can call anything. CIFAR's hold only numbers, strings, lists, one dict and one
uint8 array. So before `pickle.Unpickler` sees a file, all its opcodes are checked against those that build
such values; and the names that it may refer to never become numpy's objects, whose C code trusts its input,
but stand-ins that are defined here.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from cutlayer.errors import DataError

# The opcodes of protocols 0 to 4 that build plain values. The official files have protocol 2.
_OPCODES = {
    "PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE",
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1",
    "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE",
    "BINBYTES", "SHORT_BINBYTES",
    "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "DICT", "LIST", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
    "APPEND", "APPENDS", "SETITEM", "SETITEMS",
    "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET", "BINGET", "LONG_BINGET",
    "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD",
}  # fmt: skip
# Tuples in tuples are hashed by recursion in C, which has no limit of its own. Official files have five.
_MOST_TUPLES = 1000


class _Array:
    """`numpy.core.multiarray._reconstruct`, and the array that it makes: BUILD brings the content."""

    content: npt.NDArray[np.uint8] | None = None

    def __init__(self, kind: object, shape: object, code: object) -> None:
        if kind != "numpy.ndarray" or shape != (0,) or code not in ("b", b"b"):
            raise ValueError("it creates an array of an unknown kind")

    def __setstate__(self, state: Any) -> None:
        _version, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _Uint8):
            raise ValueError("it holds an array of another type than uint8")
        # A Python 2 string arrives as text with one character for each byte.
        data = raw.encode("latin-1") if isinstance(raw, str) else raw
        flat = np.frombuffer(data, dtype=np.uint8)
        self.content = flat.reshape(shape, order="F" if fortran else "C")


class _Uint8:
    """`numpy.dtype`, of which these files have only uint8."""

    def __init__(self, code: object, *_flags: object) -> None:
        if code != "u1":
            raise ValueError("it holds an array of another type than uint8")

    def __setstate__(self, state: object) -> None:
        """Byte order and the like, of which uint8 has no variants."""


class _Encoded:
    """`_codecs.encode`, which is how Python 3 writes bytes in the old protocols."""

    def __new__(cls, text: object, encoding: object) -> Any:
        if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
            raise ValueError("it holds bytes in an unknown encoding")
        return text.encode("latin-1")

    def __setstate__(self, state: object) -> None:
        raise ValueError("it changes what has no state")


# Each stand-in has `__setstate__`, so that BUILD can set no attribute of it. `numpy._core` is how numpy 2
# calls what was `numpy.core`.
_NAMES: dict[str, object] = {
    "numpy.core.multiarray._reconstruct": _Array,
    "numpy._core.multiarray._reconstruct": _Array,
    "numpy.ndarray": "numpy.ndarray",
    "numpy.dtype": _Uint8,
    "_codecs.encode": _Encoded,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full not in _NAMES:
            raise ValueError(f"it refers to {full!r}, which plain data never does")
        return _NAMES[full]


def read_cifar_pickle(data: bytes, where: str) -> dict[str, Any]:
    """Return the dict that a file of CIFAR holds, its keys as text.

    `where` names the file in the DataError that anything unexpected raises.
    """
    try:
        with warnings.catch_warnings():
            # Damaged text may hold escapes that Python frowns upon; that is not the user's affair.
            warnings.simplefilter("ignore", DeprecationWarning)
            _check_opcodes(data)
            found = _Unpickler(io.BytesIO(data), encoding="latin-1").load()
        return _plain(found)
    except Exception as error:  # a damaged pickle can raise anything
        raise DataError(
            f"{where}: not a plain CIFAR file, or damaged: {error}. "
            "Nothing in it was run; fetch the file again from its official source"
        ) from error


def _check_opcodes(data: bytes) -> None:
    tuples = 0
    for opcode, argument, position in pickletools.genops(data):
        if opcode.name not in _OPCODES:
            raise ValueError(f"at byte {position} it uses {opcode.name}, which plain data does not need")
        # The unpickler allocates its memo up to the highest index.
        if opcode.name.endswith("PUT") and isinstance(argument, int) and argument > len(data):
            raise ValueError(f"at byte {position} it stores more values than it has")
        tuples += opcode.name.startswith("TUPLE")
    if tuples > _MOST_TUPLES:
        raise ValueError(f"it holds {tuples} tuples")


def _plain(found: object) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise ValueError(f"it holds a {type(found).__name__}, expected a dict")
    if not all(isinstance(key, str | bytes) for key in found):
        raise ValueError("it has a key that is not text")
    # Files written again by Python 3 may have bytes as keys.
    return {
        key.decode("latin-1") if isinstance(key, bytes) else key: value.content
        if isinstance(value, _Array)
        else value
        for key, value in found.items()
    }
