"""Wait for what another thread or process does."""

import time
from collections.abc import Callable
from typing import Any

# Far more than anything takes, even on a machine that is busy with other work.
PATIENCE = 120.0


def until(
    condition: Callable[[], Any],
    what: str | Callable[[], str] = "a condition",
    seconds: float = PATIENCE,
    pause: float = 0.01,
) -> Any:
    """Wait for a condition; its value."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(pause)
    told = what if isinstance(what, str) else what()
    raise AssertionError(f"did not happen in {seconds:.0f} s: {told}")
