"""Runs kernels on a team of threads: the caller and the helper threads of the process, which stay in compiled code.

Waking a thread takes about as long as a kernel on a small batch (0.1 ms on a virtual machine), taking the GIL can take
much longer, and a push runs a dozen kernels. So the helper threads poll a control block for jobs, and sleep in a pipe
read after a long idle time, until `acquire` or a job wakes them. A process has one set of helper threads. A team has it
from `acquire` until its `depth` is 0; the team of another thread runs its jobs alone meanwhile. A job is a `share`
(`jit.py`), cut in parts. Each thread claims the next part, so no job waits for a helper that is late. A job may also be
posted: helpers run it in the background while the caller returns to Python, even out of the library. Whichever thread
needs its result, or posts the next job, finishes it first. Limit: `MAX_PARTS` parts per job.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from collections.abc import Callable, Sequence

import numpy as np

from millrace.host.base.faults import fault_point
from millrace.host.base.log import log
from millrace.host.base.types import Array
from millrace.host.runtime import pool
from millrace.host.runtime.critical import uninterrupted
from millrace.host.runtime.fork import ProcessLocal, ProcessMark
from millrace.host.runtime.intrinsics import (
    address,
    atomic_add,
    atomic_load,
    atomic_store,
    atomic_swap_if,
    call_io,
    call_share,
    sc_exchange,
)
from millrace.host.runtime.jit import Share, compiled, inline, kernel

MIN_SHARED_ROWS = 1 << 13
"""Work on fewer rows runs on one thread."""
MAX_PARTS = 1 << 15
_CLAIM, _DONE, _ALLOWED, _FUNCTION, _ARGUMENTS, _PARTS, _ASLEEP, _SCRATCH, _WRITE, _PIPE, _BLOCK = (
    64 * i for i in range(11)
)
"""Byte offsets of the words of the control block, each in a cache line of its own; `_BLOCK` is its size."""
_SPINS_BEFORE_SLEEP = 1 << 23
"""Polls of the control block before an idle helper goes to sleep: about 20 ms.

Long on purpose, as in other runtimes: waking a sleeping core may take milliseconds, longer than a push, and the next
push of a stream usually follows soon.
"""

_NUMBERS = 0xFFFFFFFF
"""Job numbers have 32 bits and start again at 0; no thread holds an old number for that long."""

# One atomic word holds the job's number and the range `low` to `high` of unclaimed parts. So a helper that has read an
# old job can never claim a part of a new one. The caller claims parts from the low end, helpers from the high end: in
# successive jobs each thread works on the same end of the data, which is still in its cache.


@inline
def _execute(control: int, number: int) -> None:
    """Execute unclaimed parts of a job, then wait until all are done; returns at once if a later job is posted."""
    while True:
        claim = atomic_load(control + _CLAIM)
        low, high = claim & 0xFFFF, (claim >> 16) & 0xFFFF
        if (claim >> 32) & _NUMBERS != number:
            return
        if low < high:
            if atomic_swap_if(control + _CLAIM, claim, claim + 1):
                function, arguments = atomic_load(control + _FUNCTION), atomic_load(control + _ARGUMENTS)
                call_share(function, arguments, low, atomic_load(control + _PARTS))
                atomic_add(control + _DONE, 1)
        elif atomic_load(control + _DONE) >= atomic_load(control + _PARTS):
            return


@inline
def _wake_sleepers(control: int) -> None:
    """Wake every helper that sleeps, with one byte each: `_ASLEEP` counts those to whom no byte was sent yet."""
    if atomic_load(control + _ASLEEP) > 0:
        for _ in range(sc_exchange(control + _ASLEEP, 0)):
            call_io(atomic_load(control + _WRITE), atomic_load(control + _PIPE), control + _SCRATCH, 1)


@inline
def _publish(control: int, function: int, arguments: int, parts: int) -> int:
    """Finish the job before, then post a job; returns its number."""
    before = (atomic_load(control + _CLAIM) >> 32) & _NUMBERS
    number = (before + 1) & _NUMBERS
    _execute(control, before)
    atomic_store(control + _FUNCTION, function)
    atomic_store(control + _ARGUMENTS, arguments)
    atomic_store(control + _PARTS, parts)
    atomic_store(control + _DONE, 0)
    atomic_store(control + _CLAIM, (number << 32) | (parts << 16))
    if parts > 1:
        _wake_sleepers(control)
    return number


@kernel
def _wake(control: int, count: int) -> None:
    """Allow `count` helpers to take parts, and wake all that sleep."""
    atomic_store(control + _ALLOWED, count)
    _wake_sleepers(control)


@kernel
def _run_shared(control: int, function: int, arguments: int, parts: int) -> None:
    """Post a job, execute it together with the helpers, and return when all parts are done."""
    _execute(control, _publish(control, function, arguments, parts))


@kernel
def _post(control: int, function: int, arguments: int, parts: int) -> int:
    """Post a job for the helpers and return its number at once."""
    return _publish(control, function, arguments, parts)


@kernel
def _finish(control: int, number: int) -> None:
    """Execute what is left of a job and return when all parts are done."""
    _execute(control, number)


@kernel
def _run_serial(function: int, arguments: int, parts: int) -> None:
    """Execute all parts of a job in order, without helpers."""
    for part in range(parts):
        call_share(function, arguments, part, parts)


def run_here(share: Share, arguments: int, parts: int) -> None:
    """Execute all parts of a share in this thread, with the arguments at an address."""
    compiled(_run_serial)(share.address, arguments, parts)


@kernel
def _helper_loop(control: int, number: int, read: int, pipe: int) -> None:
    """The loop of a helper thread: execute parts of every posted job; sleep after a long idle time. Never returns."""
    idle = 0
    while True:
        claim = atomic_load(control + _CLAIM)
        low, high = claim & 0xFFFF, (claim >> 16) & 0xFFFF
        allowed = number < atomic_load(control + _ALLOWED)
        if allowed & (low < high):
            if atomic_swap_if(control + _CLAIM, claim, claim - (1 << 16)):
                function, arguments = atomic_load(control + _FUNCTION), atomic_load(control + _ARGUMENTS)
                call_share(function, arguments, high - 1, atomic_load(control + _PARTS))
                atomic_add(control + _DONE, 1)
            idle = 0
        elif idle < _SPINS_BEFORE_SLEEP:
            idle += 1
        else:
            atomic_add(control + _ASLEEP, 1)
            call_io(read, pipe, control + _SCRATCH, 1)
            idle = 0


class HelperThreads:
    """The helper threads of a process: one per core but one, and at least one, so that every machine tests sharing."""

    def __init__(self) -> None:
        """Start the threads; they have no job yet."""
        fault_point("helpers.start")
        self.size = pool.size() - 1
        self.owner: Team | None = None
        """The team that has them, while its `depth` is above 0."""
        self.control = np.zeros(_BLOCK // 8, np.int64)
        self.posted: tuple[Array, ...] = ()
        """Arrays that a posted job may still use; held until the job is done."""
        # Never freed: helpers may still read it while the interpreter shuts down.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.control))
        wake_read, wake_write = os.pipe()
        library = ctypes.CDLL(None)
        read, write = (ctypes.cast(call, ctypes.c_void_p).value for call in (library.read, library.write))
        self.control[_WRITE // 8], self.control[_PIPE // 8] = write or 0, wake_write
        for number in range(self.size):
            given = (address(self.control), number, read, wake_read)
            # Daemons: they hold no resources, and must not keep the process alive.
            threading.Thread(target=_helper_loop, args=given, name=f"millrace-{number}", daemon=True).start()
        # A job without parts: the kernels are loaded now, not in the middle of a stream by the first job posted.
        _finish(address(self.control), _post(address(self.control), 0, 0, 0))
        self.mark = ProcessMark()
        atexit.register(self._end)

    def _end(self) -> None:
        """Finish the posted job before its memory is freed: helpers do not notice the end of the interpreter."""
        if self.mark.is_here:
            _finish(address(self.control), (int(self.control[_CLAIM // 8]) >> 32) & _NUMBERS)

    def wake(self, count: int) -> None:
        """Allow `count` helpers to take parts, and wake all that sleep."""
        _wake(address(self.control), count)


_helper_threads = ProcessLocal(HelperThreads, uninterrupted)


class Team:
    """The caller's thread and up to `threads - 1` helpers.

    `acquire`, then `try: … finally: team.depth -= 1`. A store is not a call: no signal can come before it, as it could
    before the first line of a method that releases. So a team that a signal handler has interrupted holds nothing.
    """

    def __init__(self, threads: int) -> None:
        """A team without helpers; `acquire` takes them."""
        self.threads = threads
        self._helpers: HelperThreads | None = None
        self.depth = 0
        """How many calls of `acquire` are not ended. At 0 or below other teams can take the helper threads."""

    def acquire(self, rows: int = MIN_SHARED_ROWS) -> None:
        """Take the helper threads for work on `rows` rows, and wake them; does not wait for them.

        Calls nest: the last `depth -= 1` returns the helpers. With few rows no helper is taken, since waking one
        takes longer than the work; nor if another team has them.
        """
        if self.threads < 2 or rows < MIN_SHARED_ROWS:
            self.depth = self.depth + 1 if self.depth > 0 else 1
            return
        try:
            helpers = _helper_threads.get()
        except RuntimeError as error:  # the system has no thread left: the caller works alone
            log.warning("threads: no helper threads, a call runs on one thread: %s", error)
            self.depth = self.depth + 1 if self.depth > 0 else 1
            return
        # From here to the wake-up nothing is called: neither a signal nor another thread can come between the lines.
        owner = helpers.owner
        self.depth = self.depth + 1 if self.depth > 0 else 1
        if owner is None or owner is self or owner.depth <= 0:
            helpers.owner, self._helpers = self, helpers
            helpers.control[_ALLOWED // 8] = self.threads - 1
            if helpers.control[_ASLEEP // 8]:
                try:
                    helpers.wake(self.threads - 1)
                except BaseException:
                    self.depth -= 1
                    raise

    def _held(self) -> HelperThreads | None:
        """The helper threads, if this team has them."""
        helpers = self._helpers
        return helpers if helpers is not None and self.depth > 0 and helpers.owner is self else None

    def close(self) -> None:
        """Return the helper threads, however often they were acquired."""
        self.depth = 0

    def run(self, share: Share, arguments: Array, parts: int = 0) -> None:
        """Run a share in `parts` parts (default: four per thread) and wait until all are done."""
        parts = min(parts or (4 * self.threads if self.threads > 1 else 1), MAX_PARTS)
        helpers = None if parts == 1 else self._held()
        if helpers is None:
            _run_serial(share.address, address(arguments), parts)
        else:
            _run_shared(address(helpers.control), share.address, address(arguments), parts)
            helpers.posted = ()

    def post(self, share: Share, arguments: Array, parts: int, used: Sequence[Array]) -> Callable[[], None]:
        """Start a share on the helper threads and return at once; call the returned function to finish it.

        A share raises nothing, and running it twice must do no harm. `used`: all arrays that it reads or writes; they
        are kept alive even if the caller never finishes it.
        """
        helpers, parts = self._held(), min(parts, MAX_PARTS)
        if helpers is None:
            self.run(share, arguments, parts)
            return lambda: None
        # Held before posting, together with the arrays of the job before: an interrupt may come at any line.
        helpers.posted = (arguments, *used, *helpers.posted)
        number = _post(address(helpers.control), share.address, address(arguments), parts)
        helpers.posted = (arguments, *used)

        def finish() -> None:
            if helpers.mark.is_here:
                _finish(address(helpers.control), number)
            else:  # a forked child has no helpers that work on it
                _run_serial(share.address, address(arguments), parts)

        return finish
