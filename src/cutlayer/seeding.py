"""PyTorch's generators with seeds of their place in the run: new ones, and the global ones for a while.

Dropout and the initialisation of weights draw from the global generator of their device and take no other.
It is seeded for a stretch of work, and afterwards as it was before. Global generators are the process's, not
a thread's. So is what torch.fx changes while it traces: `nn.Module` itself. One lock for all of cutlayer is
held while a model computes, is built or is traced: two runs in two threads take turns at it and do not
disturb each other.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from cutlayer.seeds import derive

_LOCK = threading.RLock()
_Restore = Callable[[], None]


def generator(purpose: str, *place: int) -> torch.Generator:
    """A fresh CPU generator for one purpose at one place in the run; see `cutlayer.seeds`."""
    return torch.Generator().manual_seed(derive(purpose, *place))


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Inside, global generators begin with this seed: that of the CPU, and that of `device` if it has one.

    Afterwards they are as they were. Code outside of cutlayer that draws in another thread at the same time
    is not kept out.
    """
    with _LOCK:
        undo = [_on_cpu(seed)]
        try:
            if device is not None and device.type == "cuda":
                undo.append(_on_cuda(seed, device))
            elif device is not None and device.type == "mps":
                undo.append(_on_mps(seed))
            yield
        finally:
            for restore in undo:
                restore()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Inside, no other thread seeds generators, which activation checkpointing restores, or traces."""
    with _LOCK:
        yield


def _on_cpu(seed: int) -> _Restore:
    generator = torch.default_generator
    before = generator.get_state()
    generator.manual_seed(seed)
    return lambda: _restore(generator, before)


def _on_cuda(seed: int, device: torch.device) -> _Restore:
    torch.cuda.init()  # type: ignore[no-untyped-call]
    index = torch.cuda.current_device() if device.index is None else device.index
    generator = torch.cuda.default_generators[index]
    before = generator.get_state()
    generator.manual_seed(seed)
    return lambda: _restore(generator, before)


def _on_mps(seed: int) -> _Restore:
    before = torch.mps.get_rng_state()
    torch.mps.manual_seed(seed)
    return lambda: torch.mps.set_rng_state(before)


def _restore(generator: torch.Generator, before: Tensor) -> None:
    generator.set_state(before)
