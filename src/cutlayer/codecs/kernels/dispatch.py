"""Choose the kernels: native (compiled, for the CPU) or reference (PyTorch, for any device).

Both give the same bytes.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType

from cutlayer.codecs.kernels import instruction_set
from cutlayer.codecs.kernels.interface import Kernels
from cutlayer.errors import CutlayerError, PayloadError
from cutlayer.imports import need

try:
    from cutlayer.codecs.kernels import native as _native
except ImportError:  # no compiler was there when cutlayer was installed
    _native = None  # type: ignore[assignment]

FAULTS = {
    1: "the mask does not mark as many elements as the header says are kept",
    2: "a value is NaN or infinite",
    3: "the unused bits at the end of a bit stream are not zero",
    4: "the keys are not increasing, or point beyond the tensor",
    5: "a range or a table of levels is not finite and in order",
}

_forced: ContextVar[str | None] = ContextVar("cutlayer_implementation", default=None)
_warned = False


def available() -> list[str]:
    """The implementations in this installation, the faster one first."""
    return (["native"] if _native else []) + (["reference"] if _has_torch() else [])


@contextmanager
def using(implementation: str) -> Iterator[None]:
    """Force `native` or `reference` within a `with` block, whatever the device. For tests and benchmarks."""
    if implementation not in available():
        raise CutlayerError(f"no implementation {implementation!r} here; there is {available()}")
    token = _forced.set(implementation)
    try:
        yield
    finally:
        _forced.reset(token)


def kernels_for(device: str) -> Kernels:
    """The implementation for a kind of device: native on "cpu" if it was built, else the reference."""
    global _warned
    forced = _forced.get()
    if forced == "reference" or (forced is None and device != "cpu"):
        return _reference()
    if _native is None:
        instruction_set.refuse_without_kernels()
        reference = _reference()
        if not _warned:
            _warned = True
            warnings.warn(
                "cutlayer runs without its compiled kernels (none were built at installation): codecs "
                "work, but slowly. Install a C++ compiler and reinstall cutlayer to have them.",
                RuntimeWarning,
                stacklevel=2,
            )
        return reference
    instruction_set.choose()
    return _as_kernels(_native)


def check(fault: int) -> None:
    """Raise the error that a decoder's fault number stands for."""
    if fault:
        raise PayloadError(f"{FAULTS[fault]}; the frame was damaged or forged before it was sealed")


def _has_torch() -> bool:
    try:
        import torch  # noqa: F401
    except ImportError:
        return False
    return True


def _reference() -> Kernels:
    """The implementation in PyTorch, which is imported only if it is used."""
    if _native is None and not _has_torch():
        raise CutlayerError(
            "cutlayer was installed without its compiled kernels, and there is no PyTorch instead; "
            "install a wheel of cutlayer, or a C++ compiler and then cutlayer again, or: "
            "pip install 'cutlayer[train]'"
        )
    need("torch", "the reference implementation of codecs")
    from cutlayer.codecs import reference

    return _as_kernels(reference)


def _as_kernels(module: ModuleType) -> Kernels:
    return module
