"""How many threads the compiled kernels use: PyTorch's number where it is loaded, else one a processor."""

import os
import sys
from functools import cache


def number() -> int:
    """How many threads a kernel may use."""
    torch = sys.modules.get("torch")
    return int(torch.get_num_threads()) if torch is not None else _own()


@cache
def _own() -> int:
    """As OpenMP would choose: OMP_NUM_THREADS, or the processors that this process may use."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
