"""Deferred Ctrl-C and SIGTERM: a run completes and saves its step before it stops."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """A context in which the first SIGINT or SIGTERM only sets `requested`; the second one interrupts.

    Signals reach the main thread only. In any other thread this does nothing.
    """

    def __init__(self) -> None:
        self.requested = False
        self.calm = False
        """Whether it was the program's own wish."""
        self._before: dict[signal.Signals, Any] = {}

    def stop(self) -> None:
        """Ask for the same as a signal does, but for a result instead of KeyboardInterrupt."""
        self.requested = self.calm = True

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
