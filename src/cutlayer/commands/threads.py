"""How many threads PyTorch gets: one for small models, one a core for large ones.

PyTorch computes with OpenMP, whose threads wait for each other by spinning. Where two processes share the
cores, or another program runs, a spinning thread keeps the core from the one it waits for: three processes
with two threads each took six times as long on two cores as with one thread each. Two remedies, both here:

- Threads that wait sleep instead (`OMP_WAIT_POLICY`). That alone undoes nearly all of the loss.
- A batch that one core computes in a second or so gains nothing from a second one, because the work of most
  operators is too short to be shared. Such models get one thread.

Sums over several threads are added in another order: results differ by rounding, and by nothing else.
"""

import os

# Multiply-adds of a forward pass. Training steps of ResNet18 with two threads against one, on two cores: 1.1
# to 2.1 times as long up to 5.6e9 (width 16, 160 images), 0.9 to 1.0 times at 1.8e10 (width 64, 32 images).
LARGE = 8e9


def sleep_while_waiting() -> None:
    """Let OpenMP threads sleep while they wait. It counts only before PyTorch is loaded."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def needs_choice(asked: int | None) -> bool:
    """Whether neither --threads nor OMP_NUM_THREADS says how many threads to use."""
    return asked is None and not os.environ.get("OMP_NUM_THREADS")


def use_threads(asked: int | None, multiply_adds: float = 0.0) -> None:
    """Set PyTorch's threads: as asked, or by the size of a forward pass of one batch."""
    import torch

    if asked is not None:
        torch.set_num_threads(asked)
    elif needs_choice(asked) and multiply_adds < LARGE:
        torch.set_num_threads(1)
