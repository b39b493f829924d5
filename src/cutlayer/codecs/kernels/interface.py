"""The interface of kernels: what `native` and `reference` both implement, function by function.

`reference` says in its docstrings what each function computes.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import NDArray
from typing_extensions import Buffer

from cutlayer.codecs.entropy.context_model import ContextModel
from cutlayer.codecs.entropy.frequency_tables import FrequencyTables
from cutlayer.codecs.entropy.section_shape import SectionShape
from cutlayer.codecs.entropy.trial_rows import Rows
from cutlayer.codecs.tensors import Tensor


class Selection(Protocol):
    """The k elements of largest magnitude in each row."""

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
    """The smallest and the largest element of one row."""

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
    """The functions of an implementation. `x` and `out` are contiguous float32 of shape (rows, d).

    What is as large as the tensor is of the implementation's own kind, which `own` makes of either: a NumPy
    array for the compiled kernels, a torch.Tensor for the reference. Smaller arrays are NumPy's.

    Encoders write a payload into `frame` (from `allocate`) at `offset`. Decoders return 0, or the number of a
    fault (`dispatch.FAULTS`); with a fault they write nothing.
    """

    def __hash__(self) -> int: ...
    def allocate(self, header: bytes, payload: int) -> Any: ...
    def own(self, x: Any) -> Tensor: ...
    def advise(self, x: Any) -> None: ...
    def empty_like(self, x: Tensor, elements: int) -> Tensor: ...
    def put_bytes(self, frame: Any, offset: int, data: Buffer) -> None: ...
    def get_floats(self, frame: Buffer, offset: int, out: Tensor) -> None: ...
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
    def km_histogram(self, row: Tensor, lo: float, hi: float) -> NDArray[Any]: ...
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
    def random_words(self, seed: int, stream: int, section: int, first: int, n: int) -> NDArray[Any]: ...
    def check_values(self, frame: Buffer, offset: int, n: int, values: int) -> int: ...

    # For `ems`: `x`, `levels` (uint8) and `out` are one row. Level `n_levels` marks a top value.
    def ems_top_values(self, x: Tensor, top: Any, row: int, values: int) -> tuple[NDArray[Any], Tensor]: ...
    def ems_quantize(self, x: Tensor, scale: float, n_levels: int, mark_from: float) -> Tensor: ...
    def ems_quantize_stochastically(
        self, x: Tensor, scale: float, n_levels: int, seed: int, stream: int, section: int
    ) -> Tensor: ...
    def ems_stochastic_tops(
        self, x: Tensor, levels: Tensor, scale: float, n_levels: int, seed: int, stream: int, section: int
    ) -> NDArray[Any]: ...
    def ems_energy(self, x: Tensor) -> float: ...
    def ems_fit_weights(
        self, levels: Tensor, shape: SectionShape, rows: Rows, n_levels: int, per_channel: bool
    ) -> ContextModel: ...
    def ems_quantize_evenly(self, x: Tensor, topmin: float, n_levels: int, nearest: bool) -> Tensor: ...
    def ems_contexts(
        self, levels: Tensor, shape: SectionShape, rows: Rows, model: ContextModel, n_levels: int
    ) -> tuple[Tensor, NDArray[Any]]: ...
    def ems_level_sums(
        self,
        x: Tensor,
        levels: Tensor,
        shape: SectionShape,
        rows: Rows,
        scale: float,
        n_levels: int,
        activities: int,
    ) -> tuple[NDArray[Any], int]: ...
    def ems_squared_error(
        self, x: Tensor, levels: Tensor, shape: SectionShape, scale: float, table: NDArray[Any]
    ) -> int: ...
    def ems_gather_rows(
        self, elements: Tensor, shape: SectionShape, where: NDArray[Any], rows: int
    ) -> Tensor: ...
    def ems_frequency_tables(self, histogram: NDArray[Any]) -> tuple[FrequencyTables, int]: ...
    def ems_rans_encode(
        self, levels: Tensor, contexts: Tensor, shape: SectionShape, tables: FrequencyTables
    ) -> tuple[bytes, list[int]]: ...
    def ems_rans_decode(
        self,
        frame: Buffer,
        offset: int,
        words: tuple[int, ...],
        shape: SectionShape,
        n_levels: int,
        model: ContextModel,
        tables: FrequencyTables,
    ) -> Tensor | None: ...
    def ems_pack_bits(self, codes: Tensor, width: int) -> Buffer: ...
    def ems_unpack_bits(self, frame: Buffer, offset: int, n: int, width: int) -> NDArray[Any] | None: ...
    def ems_pack_signs(self, x: Tensor, levels: Tensor, n_levels: int) -> bytes: ...
    def ems_sample_offsets(
        self, levels: Tensor, shape: SectionShape, n_levels: int, signed: bool
    ) -> Tensor: ...
    def ems_dequantize(
        self,
        levels: Tensor,
        shape: SectionShape,
        table: NDArray[Any],
        offsets: Tensor,
        tops: NDArray[Any],
        signs: NDArray[Any] | None,
        out: Tensor,
    ) -> None: ...
    def ems_encode_sections(
        self,
        x: Tensor,
        top: Any,
        rows: range,
        shape: SectionShape,
        values: int,
        signed: bool,
        target: Any,
    ) -> tuple[bytes, int] | None: ...
    def ems_encode_dct(
        self, x: Tensor, shape: SectionShape, values: int, budget: int | None, error: float
    ) -> tuple[bytes, int] | None: ...
    def ems_decode_sections(self, payloads: Sequence[Any]) -> bool: ...
    def ems_dct_forward(self, x: Tensor, shape: SectionShape, rotation: NDArray[Any]) -> Tensor: ...
    def ems_dct_inverse(
        self,
        y: Tensor,
        shape: SectionShape,
        rotation: NDArray[Any],
        lowest: float,
        highest: float,
        out: Tensor,
    ) -> None: ...
