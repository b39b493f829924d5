"""The instruction set of the compiled kernels: the processor's best, or the one that CUTLAYER_ISA names.

For tests and benchmarks: every instruction set gives the same bytes and values.
"""

import os
from functools import cache

from cutlayer.errors import CutlayerError

VARIABLE = "CUTLAYER_ISA"
NAMES = ("avx512", "avx2", "neon", "generic")


@cache
def choose() -> str:
    """The instruction set that the kernels use from now on. Asked for once; later changes do not count."""
    from cutlayer import _native

    name = os.environ.get(VARIABLE, "")
    here = [each for each in NAMES if each in _native.instruction_sets()]
    if name and name not in NAMES:
        raise CutlayerError(
            f"{VARIABLE}={name} is no instruction set; choose one of {', '.join(here)}, "
            "or unset it for the best"
        )
    if name and not _native.choose_instruction_set(name):
        raise CutlayerError(
            f"{VARIABLE}={name}, but this processor does not have it; choose one of {', '.join(here)}, "
            "or unset it for the best"
        )
    return str(_native.instruction_set())


def refuse_without_kernels() -> None:
    """Where nothing was compiled there is nothing to choose."""
    if os.environ.get(VARIABLE):
        raise CutlayerError(
            f"{VARIABLE} chooses among compiled kernels, and cutlayer was installed without them; unset it"
        )
