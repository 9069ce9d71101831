"""A team of threads that work on one call's kernels without going back to Python in between.

Waking a thread takes about as long as a whole kernel does on a small batch (0.1 ms on a virtual machine), and taking
Python's lock can take much longer; a push runs a dozen kernels. So a process has one *crew* of helper threads, which
never leave compiled code: they look for work in a control block, and sleep in a pipe when none comes for long. A team
that is roused has the crew for itself until it rests; another thread's team works alone meanwhile. A job is a `share`
(`jit.py`) cut in parts; whoever is there claims the next part, so a helper that comes late or not at all
costs nothing but its help. A job may also be posted for the helpers while the caller goes back to Python, even out of
the library; whoever needs it finishes it, and so does whoever wants the crew for the next job.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from collections.abc import Callable, Sequence

import numpy as np

from millrace.host.base.types import Array
from millrace.host.runtime import pool
from millrace.host.runtime.arena import Arena
from millrace.host.runtime.intrinsics import (
    address,
    atomic_add,
    atomic_load,
    atomic_store,
    atomic_swap_if,
    call_read,
    call_share,
)
from millrace.host.runtime.jit import Share, inline, kernel

MOST_PARTS = 1 << 15
_CLAIM, _DONE, _ALLOWED, _FUNCTION, _ARGUMENTS, _PARTS, _ASLEEP, _NOTHING, _BLOCK = (64 * i for i in range(9))
"""The control block's words, each in a cache line of its own."""
_PATIENCE = 1 << 23
"""Looks at the control block before an idle helper goes to sleep: about twenty milliseconds.

Long on purpose, as in other runtimes: a processor that has gone to sleep may take milliseconds to come back, more
than a whole push, and a stream's next push is near.
"""

# The claim word is one: the job's number, and the parts from `low` to `high` that nobody has claimed. So a helper that
# looks at an old job can never claim a part of a new one. The leader takes parts from the low end, helpers from the
# high end: in job after job each then works on the same end of the data, which is still in its cache.


@inline
def _work_off(control: int, number: int) -> None:
    """Work on a job with whoever else is there, until all of it is done; nothing if that is so long since."""
    while True:
        claim = atomic_load(control + _CLAIM)
        low, high = claim & 0xFFFF, (claim >> 16) & 0xFFFF
        if claim >> 32 != number:
            return
        if low < high:
            if atomic_swap_if(control + _CLAIM, claim, claim + 1):
                function, arguments = atomic_load(control + _FUNCTION), atomic_load(control + _ARGUMENTS)
                call_share(function, arguments, low, atomic_load(control + _PARTS))
                atomic_add(control + _DONE, 1)
        elif atomic_load(control + _DONE) >= atomic_load(control + _PARTS):
            return


@inline
def _put_up(control: int, function: int, arguments: int, parts: int) -> int:
    """Post a job once the one before is done; its number."""
    number = atomic_load(control + _CLAIM) >> 32
    _work_off(control, number)
    atomic_store(control + _FUNCTION, function)
    atomic_store(control + _ARGUMENTS, arguments)
    atomic_store(control + _PARTS, parts)
    atomic_store(control + _DONE, 0)
    atomic_store(control + _CLAIM, ((number + 1) << 32) | (parts << 16))
    return number + 1


@kernel
def _lead(control: int, function: int, arguments: int, parts: int) -> None:
    """Post a job, work on it with whoever else is there, and return when all of it is done."""
    _work_off(control, _put_up(control, function, arguments, parts))


@kernel
def _post(control: int, function: int, arguments: int, parts: int) -> int:
    """Post a job for the helpers and go on; its number."""
    return _put_up(control, function, arguments, parts)


@kernel
def _finish(control: int, number: int) -> None:
    """Return when all of a job is done."""
    _work_off(control, number)


@kernel
def _alone(function: int, arguments: int, parts: int) -> None:
    """All parts of a job, one after the other."""
    for part in range(parts):
        call_share(function, arguments, part, parts)


@kernel
def _follow(control: int, number: int, read: int, pipe: int) -> None:
    """Work on every job that is posted, for ever; asleep while there are none."""
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
        elif idle < _PATIENCE:
            idle += 1
        else:
            atomic_add(control + _ASLEEP, 1)
            call_read(read, pipe, control + _NOTHING, 1)
            atomic_add(control + _ASLEEP, -1)
            idle = 0


class Crew:
    """The helper threads of a process, one less than it has cores (but at least one, so that sharing is exercised)."""

    def __init__(self) -> None:
        """Start them; they go to sleep at once."""
        self.size = pool.size() - 1
        self.lock = threading.Lock()
        self.control = np.zeros(_BLOCK // 8, np.int64)
        self.posted: tuple[Array, ...] = ()
        """What a job that nobody waits for may still use."""
        # Never given back: helpers may still look at it while the interpreter takes everything else down.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.control))
        self._sleepers, self._alarm = os.pipe()
        os.set_blocking(self._alarm, False)
        read = ctypes.cast(ctypes.CDLL(None).read, ctypes.c_void_p).value
        for number in range(self.size):
            given = (address(self.control), number, read, self._sleepers)
            # Daemons: they hold nothing that must be given back, and must not keep the process alive.
            threading.Thread(target=_follow, args=given, name=f"millrace-{number}", daemon=True).start()
        atexit.register(self._end, os.getpid())

    def _end(self, pid: int) -> None:
        """Finish what is posted while its memory is still there: helpers do not notice the end of the interpreter."""
        if os.getpid() == pid:
            _finish(address(self.control), int(self.control[_CLAIM // 8]) >> 32)

    def rouse(self, helpers: int) -> None:
        """Let so many helpers work, and wake those that sleep."""
        self.control[_ALLOWED // 8] = helpers
        asleep = int(self.control[_ASLEEP // 8])
        if asleep:
            try:
                os.write(self._alarm, bytes(asleep))
            except BlockingIOError:  # thousands of alarms that nobody has heard: nobody will miss this one
                return


_crews: dict[int, Crew] = {}
_starting = threading.Lock()


def _crew() -> Crew:
    """This process's crew; a forked child starts its own."""
    pid = os.getpid()
    if pid not in _crews:
        with _starting:
            if pid not in _crews:
                _crews.clear()
                _crews[pid] = Crew()
    return _crews[pid]


class Team:
    """The caller's thread and up to `threads - 1` helpers."""

    def __init__(self, threads: int, arena: Arena | None = None) -> None:
        """Nobody is roused yet."""
        self.threads = threads
        self.arena = arena or Arena()
        self._crew: Crew | None = None
        self._pid = 0

    def rouse(self) -> None:
        """Take the crew, if nobody else has it, and wake it, without waiting for it."""
        if self.threads < 2:
            return
        if self._crew is not None and self._pid != os.getpid():
            self._crew = None  # the parent's, which is not here
        if self._crew is None:
            crew = _crew()
            if not crew.lock.acquire(blocking=False):
                return
            self._crew, self._pid = crew, os.getpid()
        self._crew.rouse(self.threads - 1)

    def rest(self) -> None:
        """Give the crew back."""
        crew, self._crew = self._crew, None
        if crew is not None and self._pid == os.getpid():
            crew.lock.release()

    def disband(self) -> None:
        """Give crew and memory back; whoever works on has neither from here."""
        self.rest()
        self.arena.leave()
        self.arena = Arena()

    def run(self, share: Share, arguments: Array, parts: int = 0) -> None:
        """Run a share in parts (by default a few per thread) and wait until all are done."""
        parts = min(parts or (4 * self.threads if self.threads > 1 else 1), MOST_PARTS)
        if self._crew is None or parts == 1:
            _alone(share.address, address(arguments), parts)
        else:
            _lead(address(self._crew.control), share.address, address(arguments), parts)
            self._crew.posted = ()

    def post(self, share: Share, arguments: Array, parts: int, used: Sequence[Array]) -> Callable[[], None]:
        """Have the crew begin a share, which raises nothing and can be done twice; call what is returned to finish it.

        `used`: all arrays that are read or written, so that they stay even if nobody ever finishes it.
        """
        crew, pid, parts = self._crew, os.getpid(), min(parts, MOST_PARTS)
        if crew is None:
            self.run(share, arguments, parts)
            return lambda: None
        # Kept before it is posted, together with what the job before may still use: an interrupt may come in between.
        crew.posted = (arguments, *used, *crew.posted)
        number = _post(address(crew.control), share.address, address(arguments), parts)
        crew.posted = (arguments, *used)

        def finish() -> None:
            if os.getpid() == pid:
                _finish(address(crew.control), number)
            else:  # a fork: whoever worked on it is not here
                _alone(share.address, address(arguments), parts)

        return finish


def _renew_lock() -> None:
    """A fork may have happened while another thread held the lock: the child gets a fresh one."""
    global _starting
    _starting = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)
