"""Whether and how a step of a live join runs in the thread of its caller, although a signal may come meanwhile.

A step must not be cut by a signal handler that raises: its results would be lost, or found twice. Python runs
handlers in the main thread only. There, an interrupt (SIGINT) is delayed until the step is over. If a program handles
other signals, the main thread leaves steps to the worker.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # its `getsignal` is faster: no enumerations
import signal
import threading
from types import FrameType

_OTHER_SIGNALS = sorted(signal.valid_signals() - {signal.SIGINT})


def may_step() -> bool:
    """Return whether no signal handler can cut a step of the current thread."""
    if threading.current_thread() is not threading.main_thread():
        return True
    if _signal.getsignal(signal.SIGINT) is None:  # not Python's: it could not be restored
        return False
    return not any(map(callable, map(_signal.getsignal, _OTHER_SIGNALS)))


class WithoutInterrupts:
    """A block in which the main thread is not interrupted: SIGINT is handled at its end. Others receive none."""

    def __enter__(self) -> None:
        """Begin to delay interrupts."""
        self._caught = False
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            self._before = _signal.signal(signal.SIGINT, self._catch)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        self._caught = True

    def __exit__(self, *_: object) -> None:
        """Handle an interrupt that came meanwhile."""
        if self._main:
            _signal.signal(signal.SIGINT, self._before)
            if self._caught:
                signal.raise_signal(signal.SIGINT)
