"""The surface between codecs and the two implementations of their work.

`reference` is plain PyTorch: readable, runs on any device, always there. `native` is the compiled one, for
the CPU. Both give the same bytes.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Buffer

from cutlayer.codecs import reference
from cutlayer.codecs.entropy.context_model import Model
from cutlayer.codecs.entropy.frequency_tables import Tables
from cutlayer.codecs.entropy.section_shape import Geometry
from cutlayer.codecs.entropy.trial_rows import Rows
from cutlayer.errors import CutlayerError, PayloadError

try:
    from cutlayer.codecs.kernels import native as _native
except ImportError:  # no compiler was there when cutlayer was installed
    _native = None  # type: ignore[assignment]


class Selection(Protocol):
    """The top k of each row."""

    @property
    def negative(self) -> bool:
        """Whether any element is negative."""

    @property
    def largest(self) -> float:
        """The largest magnitude; not finite if any element is not."""

    @property
    def topmin(self) -> list[float]:
        """The smallest top magnitude of each row."""


class Range(Protocol):
    """The extent of one row."""

    @property
    def lo(self) -> float:
        """The smallest element."""

    @property
    def hi(self) -> float:
        """The largest element."""

    @property
    def largest(self) -> float:
        """The largest magnitude; not finite if any element is not."""


class Kernels(Protocol):
    """What both implementations offer. `x` and `out` are contiguous float32 of shape (rows, d).

    Encoders write a payload into `frame` (from `allocate`) at `offset`. Decoders return 0 or the number of a
    fault, and write nothing when they find one.
    """

    def allocate(self, header: bytes, payload: int) -> Any: ...
    def empty(
        self, shape: Sequence[int], dtype: torch.dtype, device: torch.device | None = None
    ) -> Tensor: ...
    def put_bytes(self, frame: Any, offset: int, data: Buffer) -> None: ...
    def seal(self, frame: Any, start: int) -> bytes: ...
    def checksum(self, frame: Buffer, start: int) -> int: ...
    def select_top(self, x: Tensor, k: int) -> Selection: ...
    def ms_encode(
        self,
        x: Tensor,
        top: Any,
        bits: int,
        nearest: bool,
        signed: bool,
        values: int,
        frame: Any,
        offset: int,
    ) -> None: ...
    def sparse_encode(
        self,
        x: Tensor,
        k: int,
        pick: int,
        alpha: float,
        coin: bool,
        seed: int,
        keys: bool,
        values: int,
        scale: float,
        frame: Any,
        offset: int,
    ) -> float: ...
    def ranges(self, x: Tensor) -> list[Any]: ...
    def qu_encode(
        self,
        x: Tensor,
        ranges: list[Any],
        bits: int,
        stochastic: bool,
        seed: int,
        own_range: bool,
        frame: Any,
        offset: int,
    ) -> None: ...
    def km_histogram(self, row: Tensor, lo: float, hi: float) -> Tensor: ...
    def km_encode(
        self, row: Tensor, lo: float, hi: float, cluster: bytes, bits: int, frame: Any, offset: int
    ) -> None: ...
    def ms_decode(
        self, frame: Buffer, offset: int, k: int, bits: int, signed: bool, values: int, out: Tensor
    ) -> int: ...
    def sparse_decode(
        self, frame: Buffer, offset: int, k: int, keys: bool, values: int, out: Tensor
    ) -> int: ...
    def qu_decode(
        self, frame: Buffer, offset: int, bits: int, own: tuple[float, float] | None, out: Tensor
    ) -> int: ...
    def km_decode(self, frame: Buffer, offset: int, bits: int, out: Tensor) -> int: ...
    def check_values(self, frame: Buffer, offset: int, n: int, values: int) -> int: ...

    # The work of `ems`; `x`, `levels` (uint8) and `out` are one row. reference/entropy.py says what it is.
    def ems_tops(self, x: Tensor, top: Any, row: int, values: int) -> tuple[Tensor, Tensor]: ...
    def ems_levels(self, x: Tensor, scale: float, levels: int, mark_from: float) -> Tensor: ...
    def ems_energy(self, x: Tensor) -> float: ...
    def ems_fit(self, levels: Tensor, shape: Geometry, rows: Rows, most: int, own: bool) -> Model: ...
    def ems_equal_levels(self, x: Tensor, topmin: float, levels: int, nearest: bool) -> Tensor: ...
    def ems_contexts(
        self, levels: Tensor, shape: Geometry, rows: Rows, model: Model, most: int
    ) -> tuple[Tensor, NDArray[Any]]: ...
    def ems_sums(
        self, x: Tensor, levels: Tensor, shape: Geometry, rows: Rows, scale: float, most: int, kinds: int
    ) -> tuple[NDArray[Any], int]: ...
    def ems_error(
        self, x: Tensor, levels: Tensor, shape: Geometry, scale: float, table: NDArray[Any]
    ) -> int: ...
    def ems_strips(self, elements: Tensor, shape: Geometry, where: NDArray[Any], rows: int) -> Tensor: ...
    def ems_tables(self, histogram: NDArray[Any]) -> tuple[Tables, int]: ...
    def ems_encode(
        self, levels: Tensor, contexts: Tensor, shape: Geometry, tables: Tables
    ) -> tuple[bytes, list[int]]: ...
    def ems_decode(
        self,
        frame: Buffer,
        offset: int,
        words: tuple[int, ...],
        shape: Geometry,
        most: int,
        model: Model,
        tables: Tables,
    ) -> Tensor | None: ...
    def ems_pack(self, codes: Tensor, width: int) -> Buffer: ...
    def ems_unpack(self, frame: Buffer, offset: int, n: int, width: int) -> Tensor | None: ...
    def ems_signs(self, x: Tensor, levels: Tensor, mark: int) -> bytes: ...
    def ems_starts(self, levels: Tensor, shape: Geometry, most: int, signed: bool) -> Tensor: ...
    def ems_rebuild(
        self,
        levels: Tensor,
        shape: Geometry,
        table: NDArray[Any],
        starts: Tensor,
        tops: Tensor,
        signs: Tensor | None,
        out: Tensor,
    ) -> None: ...
    def ems_forward(self, x: Tensor, shape: Geometry, rotation: NDArray[Any]) -> Tensor: ...
    def ems_inverse(
        self,
        y: Tensor,
        shape: Geometry,
        rotation: NDArray[Any],
        lowest: float,
        highest: float,
        out: Tensor,
    ) -> None: ...


FAULTS = {
    1: "the mask does not mark as many elements as the header says are kept",
    2: "a value is NaN or infinite",
    3: "the unused bits at the end of a bit stream are not zero",
    4: "the keys are not increasing, or point beyond the tensor",
    5: "a range or a table of levels is not finite and in order",
}

_forced: ContextVar[str | None] = ContextVar("cutlayer_implementation", default=None)
_said = False


def available() -> list[str]:
    """The implementations that this installation has, the fastest first."""
    return (["native"] if _native else []) + ["reference"]


@contextmanager
def using(implementation: str) -> Iterator[None]:
    """Within the block, use `native` or `reference`, whatever the device."""
    if implementation not in available():
        raise CutlayerError(f"no implementation {implementation!r} here; there is {available()}")
    token = _forced.set(implementation)
    try:
        yield
    finally:
        _forced.reset(token)


def kernels_for(device: torch.device) -> Kernels:
    """The implementation for tensors on a device."""
    global _said
    forced = _forced.get()
    if forced == "reference" or (forced is None and device.type != "cpu"):
        return _as_kernels(reference)
    if _native is None:
        if not _said:
            _said = True
            warnings.warn(
                "cutlayer runs without its compiled kernels (none were built at installation): codecs "
                "work, but slowly. Install a C++ compiler and reinstall cutlayer to have them.",
                RuntimeWarning,
                stacklevel=2,
            )
        return _as_kernels(reference)
    return _as_kernels(_native)


def check(fault: int) -> None:
    """Raise the error that a decoder's fault number stands for."""
    if fault:
        raise PayloadError(f"{FAULTS[fault]}; the frame was damaged or forged before it was sealed")


def _as_kernels(module: ModuleType) -> Kernels:
    return module
