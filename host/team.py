"""A team of threads that work on one call's kernels without going back to Python in between.

Waking a thread takes about as long as a whole kernel does on a small batch (0.1 ms on a virtual machine), and a push
runs a dozen kernels. So helpers are roused once, early in a push, and then watch a control block for the next job
until they are sent to rest. A job is a `share` (`millrace.host.jit`) cut in parts; whoever is there claims the next
part, so a helper that comes late or not at all costs nothing but its help. One thread leads a team at a time.
"""

from __future__ import annotations

import os
from concurrent.futures import Future

import numpy as np

from millrace.host import pool
from millrace.host.arena import Arena
from millrace.host.jit import Share, kernel
from millrace.host.memory import address, atomic_add, atomic_load, atomic_store, atomic_swap_if, call_share
from millrace.host.words import Array

MOST_PARTS = 1 << 15
_CLAIM, _DONE, _STOP, _FUNCTION, _ARGUMENTS, _BLOCK = (64 * i for i in range(6))
"""The control block's words, each in a cache line of its own."""
_PATIENCE = 1 << 22
"""Looks at the control block before an idle helper leaves by itself: some milliseconds."""

# The claim word is one: the job's number, its parts, and the next part that nobody has claimed. So a helper that
# looks at an old job can never claim a part of a new one.


@kernel
def _lead(control: int, function: int, arguments: int, parts: int) -> None:
    """Post a job, work on it with whoever else is there, and return when all of it is done."""
    number = (atomic_load(control + _CLAIM) >> 32) + 1
    atomic_store(control + _FUNCTION, function)
    atomic_store(control + _ARGUMENTS, arguments)
    atomic_store(control + _DONE, 0)
    atomic_store(control + _CLAIM, (number << 32) | (parts << 16))
    while True:
        claim = atomic_load(control + _CLAIM)
        part = claim & 0xFFFF
        if part >= parts:
            break
        if atomic_swap_if(control + _CLAIM, claim, claim + 1):
            call_share(function, arguments, part, parts)
            atomic_add(control + _DONE, 1)
    while atomic_load(control + _DONE) < parts:
        pass


@kernel
def _follow(control: int) -> None:
    """Work on every job that is posted, until told to stop or nothing has come for long."""
    idle = 0
    while atomic_load(control + _STOP) == 0 and idle < _PATIENCE:
        claim = atomic_load(control + _CLAIM)
        part, parts = claim & 0xFFFF, (claim >> 16) & 0xFFFF
        if part < parts and atomic_swap_if(control + _CLAIM, claim, claim + 1):
            call_share(atomic_load(control + _FUNCTION), atomic_load(control + _ARGUMENTS), part, parts)
            atomic_add(control + _DONE, 1)
            idle = 0
        else:
            idle += 1


class Team:
    """The caller's thread and up to `threads - 1` helpers."""

    def __init__(self, threads: int) -> None:
        """Nobody is roused yet."""
        self.threads = threads
        self.arena = Arena()
        self._pid = os.getpid()
        self._control = np.zeros(_BLOCK // 8, np.int64)
        self._helpers: list[Future[None]] = []

    def rouse(self) -> None:
        """Wake the helpers, without waiting for them."""
        if self._pid != os.getpid():
            self.__init__(self.threads)  # type: ignore[misc]  # a forked child starts anew
        if self.threads < 2 or (self._helpers and not any(h.done() for h in self._helpers)):
            return
        self.rest()
        control = self._control = np.zeros(_BLOCK // 8, np.int64)
        self._helpers = [pool.submit(lambda: _follow(address(control))) for _ in range(self.threads - 1)]

    def rest(self) -> None:
        """Send the helpers away; those that never came do not come any more."""
        self._control[_STOP // 8] = 1
        for helper in self._helpers:
            helper.cancel()
        self._helpers = []

    def run(self, share: Share, arguments: Array, parts: int = 0) -> None:
        """Run a share in parts (by default a few per thread) and wait until all are done."""
        parts = min(parts or (4 * self.threads if self.threads > 1 else 1), MOST_PARTS)
        _lead(address(self._control), share.address, address(arguments), parts)
