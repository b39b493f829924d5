"""Read the plain values of a CIFAR pickle without unpickling it.

The official CIFAR files are pickles, and a pickle is a program that can call anything. They hold
only numbers, strings, lists, one dict and one uint8 array, so this reader interprets just the
opcodes that build those. A global name is never imported: it is looked up in a table of four
names, each with a meaning given here. Everything else is refused with nothing having been run.
"""

from __future__ import annotations

import pickletools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from cutlayer.errors import DataError


class _Global(str):
    """A name that the pickle refers to; only a label, never the object of that name."""


class _RefusedError(Exception):
    """The pickle does something that plain values do not need."""


class _Array:
    """The array between its creation (REDUCE) and the arrival of its content (BUILD)."""

    def __init__(self) -> None:
        self.content: npt.NDArray[np.uint8] | None = None

    def build(self, state: Any) -> None:
        _version, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _Uint8):
            raise _RefusedError("holds an array that is not uint8")
        # A Python 2 string arrives as text with one character for each byte.
        data = raw.encode("latin-1") if isinstance(raw, str) else raw
        flat = np.frombuffer(data, dtype=np.uint8)
        self.content = flat.reshape(shape, order="F" if fortran else "C")


class _Uint8:
    """The dtype uint8, the only one that these files contain."""

    def build(self, state: Any) -> None:
        """Accept what numpy stores with a dtype (byte order and so on): uint8 has no variants."""


def _reconstruct(kind: Any, shape: Any, code: Any) -> _Array:
    if kind != "numpy ndarray" or shape != (0,) or code not in ("b", b"b"):
        raise _RefusedError("creates an array of an unknown kind")
    return _Array()


def _dtype(code: Any, *_flags: Any) -> _Uint8:
    if code != "u1":
        raise _RefusedError("holds an array of another type than uint8")
    return _Uint8()


def _encode(text: Any, encoding: Any) -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise _RefusedError("holds bytes in an unknown encoding")
    return text.encode("latin-1")


# What each allowed name means when it is called. `_codecs encode` is how Python 3 writes bytes in
# the old protocols, `numpy._core` how numpy 2 calls what was `numpy.core`.
_CALLS: dict[str, Callable[..., Any]] = {
    "numpy.core.multiarray _reconstruct": _reconstruct,
    "numpy._core.multiarray _reconstruct": _reconstruct,
    "numpy dtype": _dtype,
    "_codecs encode": _encode,
}
_ALLOWED = {*_CALLS, "numpy ndarray"}


class _Machine:
    """A stack, the marks on it, and a memo: what every pickle is written for."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def take(self, count: int) -> tuple[Any, ...]:
        if count > len(self.stack):
            raise _RefusedError("takes more from its stack than it put there")
        taken = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        return taken

    def take_marked(self) -> tuple[Any, ...]:
        return self.take(len(self.stack) - self.marks.pop())

    def name(self, name: str) -> None:
        if name not in _ALLOWED:
            raise _RefusedError(f"refers to {name.replace(' ', '.')!r}, which plain data never does")
        self.push(_Global(name))

    def call(self) -> None:
        function, arguments = self.take(2)
        if not isinstance(function, _Global) or function not in _CALLS:
            raise _RefusedError("calls something that cannot be called")
        self.push(_CALLS[function](*arguments))

    def build(self) -> None:
        (state,) = self.take(1)
        if not isinstance(self.stack[-1], _Array | _Uint8):
            raise _RefusedError("sets the state of something that has none")
        self.stack[-1].build(state)

    def append(self, items: tuple[Any, ...]) -> None:
        if not isinstance(self.stack[-1], list):
            raise _RefusedError("appends to something that is not a list")
        self.stack[-1].extend(items)

    def push_dict(self, items: tuple[Any, ...]) -> None:
        self.push({})
        self.set_items(items)

    def set_items(self, items: tuple[Any, ...]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict):
            raise _RefusedError("sets items of something that is not a dict")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str | bytes):
                raise _RefusedError("has a key that is not text")
            # Files written again by Python 3 may have bytes as keys.
            target[key.decode("latin-1") if isinstance(key, bytes) else key] = value


def _constant(m: _Machine, argument: Any) -> None:
    m.push(argument)


def _skip(m: _Machine, argument: Any) -> None:
    pass


def _put(m: _Machine, argument: Any) -> None:
    m.memo[argument] = m.stack[-1]


def _get(m: _Machine, argument: Any) -> None:
    m.push(m.memo[argument])


# Every opcode of protocols 0 to 4 that builds plain values. The official files use protocol 2.
_OPCODES: dict[str, Callable[[_Machine, Any], None]] = {
    **dict.fromkeys(["PROTO", "FRAME", "STOP"], _skip),
    **dict.fromkeys(["INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1"], _constant),
    **dict.fromkeys(["STRING", "BINSTRING", "SHORT_BINSTRING"], _constant),
    **dict.fromkeys(["UNICODE", "BINUNICODE", "SHORT_BINUNICODE"], _constant),
    **dict.fromkeys(["BINBYTES", "SHORT_BINBYTES"], _constant),
    "NONE": lambda m, _: m.push(None),
    "NEWTRUE": lambda m, _: m.push(True),
    "NEWFALSE": lambda m, _: m.push(False),
    "EMPTY_DICT": lambda m, _: m.push({}),
    "EMPTY_LIST": lambda m, _: m.push([]),
    "EMPTY_TUPLE": lambda m, _: m.push(()),
    "MARK": lambda m, _: m.marks.append(len(m.stack)),
    "LIST": lambda m, _: m.push(list(m.take_marked())),
    "TUPLE": lambda m, _: m.push(m.take_marked()),
    "TUPLE1": lambda m, _: m.push(m.take(1)),
    "TUPLE2": lambda m, _: m.push(m.take(2)),
    "TUPLE3": lambda m, _: m.push(m.take(3)),
    "DICT": lambda m, _: m.push_dict(m.take_marked()),
    "APPEND": lambda m, _: m.append(m.take(1)),
    "APPENDS": lambda m, _: m.append(m.take_marked()),
    "SETITEM": lambda m, _: m.set_items(m.take(2)),
    "SETITEMS": lambda m, _: m.set_items(m.take_marked()),
    **dict.fromkeys(["PUT", "BINPUT", "LONG_BINPUT"], _put),
    **dict.fromkeys(["GET", "BINGET", "LONG_BINGET"], _get),
    "MEMOIZE": lambda m, _: _put(m, len(m.memo)),
    "GLOBAL": lambda m, name: m.name(name),
    "STACK_GLOBAL": lambda m, _: m.name(" ".join(m.take(2))),
    "REDUCE": lambda m, _: m.call(),
    "BUILD": lambda m, _: m.build(),
}


def read_plain(data: bytes, where: str) -> dict[str, Any]:
    """Return the dict that a pickle of plain values holds, its keys as text.

    `where` names the file in the DataError that anything unexpected raises.
    """
    machine = _Machine()
    position: int | None = 0
    try:
        with warnings.catch_warnings():
            # Damaged text may hold escapes that Python frowns upon; that is not the user's affair.
            warnings.simplefilter("ignore", DeprecationWarning)
            for opcode, argument, at in pickletools.genops(data):
                position = at
                handler = _OPCODES.get(opcode.name)
                if handler is None:
                    raise _RefusedError(f"uses the opcode {opcode.name}, which plain data does not need")
                handler(machine, argument)
        (result,) = machine.stack
    except _RefusedError as error:
        raise DataError(
            f"{where}: not a plain CIFAR file: at byte {position} it {error}. "
            "Nothing in it was run; fetch the file again from its official source"
        ) from None
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        # A damaged pickle can break any assumption of the handlers above.
        raise DataError(f"{where}: damaged near byte {position} ({error}); fetch the file again") from error
    if not isinstance(result, dict):
        raise DataError(f"{where}: holds a {type(result).__name__}, expected a dict")
    return {key: value.content if isinstance(value, _Array) else value for key, value in result.items()}
