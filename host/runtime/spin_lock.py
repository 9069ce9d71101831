"""A lock for compiled code that spins for a short time, then sleeps.

A lock is an aligned 64-bit word, 0 when free, best in a cache line of its own. Its states are those of the usual futex
mutex: free, held, held with sleepers. `acquire_lock` has acquire and `release_lock` release semantics: what a holder
wrote, the next holder sees. Releasing a lock without sleepers is one atomic exchange, with no system call.

Limits: not re-entrant and not fair; Python threads must call these from kernels only (they block without the GIL). A
forked child must zero the words: the thread that held a lock does not exist there.
"""

from __future__ import annotations

from millrace.host.runtime.intrinsics import atomic_store, atomic_swap_if, sc_exchange
from millrace.host.runtime.jit import inline
from millrace.host.runtime.thread_sleep import SPINS, pause, sleep_while, spin_or_nap, wake_sleepers

FREE, HELD, CONTENDED = 0, 1, 2
SLEEP_NANOSECONDS = 50_000_000
"""Longest sleep in one go; the thread then looks again. No wake-up depends on it."""


@inline
def try_lock(where: int) -> bool:
    """Take the lock if it is free; never waits."""
    return atomic_swap_if(where, FREE, HELD)


@inline
def acquire_lock(where: int) -> None:
    """Take the lock; spins, then sleeps until it is free."""
    spins = 0
    while not atomic_swap_if(where, FREE, HELD):
        if spins < SPINS:
            spins += 1
            pause()
        else:
            # From here on this thread marks the lock as contended, also when it gets it: others may sleep still.
            while sc_exchange(where, CONTENDED) != FREE:
                sleep_while(where, CONTENDED, SLEEP_NANOSECONDS)
            return


@inline
def release_lock(where: int) -> None:
    """Free the lock, and wake one sleeper if there are any."""
    if sc_exchange(where, FREE) == CONTENDED:
        wake_sleepers(where, 1)


# A lock for sections of some ten instructions, which releases with a plain store: no second barrier.


@inline
def spin_acquire(where: int) -> None:
    """Take the lock. A waiter spins; if the holder seems to be suspended, it sleeps for short times."""
    spins = 0
    while not atomic_swap_if(where, FREE, HELD):
        spins = spin_or_nap(where, HELD, spins)


@inline
def spin_release(where: int) -> None:
    """Free the lock; nobody is woken."""
    atomic_store(where, FREE)
