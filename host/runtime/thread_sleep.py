"""Sleeping and waking in compiled code: a thread sleeps at a word until another thread changes it and wakes it.

Linux's `futex` system call. On other systems a thread sleeps for a short time instead and looks again: slower, not
wrong. `spin_lock.py` builds a lock on it. Here is the event counter: threads that find no work wait for it, and threads
that bring work signal it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from platform import machine, system
from typing import Any

from llvmlite import ir

from millrace.host.runtime.intrinsics import atomic_add, atomic_load, codegen, define, fence, sc_load
from millrace.host.runtime.jit import inline

SPINS = 100
"""Looks at a word before a thread sleeps: some microseconds. Longer would waste a core that another thread needs."""
NAP_NANOSECONDS = 20_000
"""A short sleep of a waiter that nobody wakes."""
ALL = 1 << 30
"""Wake every sleeper."""
INT, WORD = ir.IntType(32), ir.IntType(64)
_FUTEX_CALLS = {"x86_64": 202, "aarch64": 98}
"""The number of Linux's `futex` system call."""
_FUTEX_WAIT, _FUTEX_WAKE = 128, 129
"""Its operations, for the threads of one process."""
_NAP_MICROSECONDS = 50
_MONOTONIC = int(getattr(time, "CLOCK_MONOTONIC", 1))


def _futex_call() -> int | None:
    return _FUTEX_CALLS.get(machine()) if system() == "Linux" else None


def _system_call(b: Any, *given: Any) -> Any:
    function = codegen.get_or_insert_function(b.module, ir.FunctionType(WORD, [WORD], var_arg=True), "syscall")
    return b.call(function, given)


def _sleep_while(b: Any, where: Any, value: Any, nanoseconds: Any) -> None:
    call = _futex_call()
    if call is None:  # no futex: a short sleep, after which the caller looks again
        nap = codegen.get_or_insert_function(b.module, ir.FunctionType(INT, [INT]), "usleep")
        b.call(nap, [INT(_NAP_MICROSECONDS)])
        return
    limit = codegen.alloca_once(b, ir.ArrayType(WORD, 2))
    second = WORD(1_000_000_000)
    for i, part in enumerate((b.sdiv(nanoseconds, second), b.srem(nanoseconds, second))):
        b.store(part, b.gep(limit, [INT(0), INT(i)]))
    _system_call(b, WORD(call), where, WORD(_FUTEX_WAIT), value, b.ptrtoint(limit, WORD), WORD(0), WORD(0))


def _wake_sleepers(b: Any, where: Any, count: Any) -> None:
    call = _futex_call()
    if call is not None:
        _system_call(b, WORD(call), where, WORD(_FUTEX_WAKE), count, WORD(0), WORD(0), WORD(0))


def _pause(b: Any) -> None:
    name, given = {"x86_64": ("llvm.x86.sse2.pause", []), "aarch64": ("llvm.aarch64.isb", [INT(15)])}.get(
        machine(), ("llvm.donothing", [])
    )
    kind = ir.FunctionType(ir.VoidType(), [one.type for one in given])
    b.call(codegen.get_or_insert_function(b.module, kind, name), given)


pause: Callable[[], None] = define(_pause, "void")
"""Tell the processor that this thread spins."""
sleep_while: Callable[[int, int, int], None] = define(_sleep_while, "void", "int64", "int64", "int64")
"""Sleep while the low 32 bits of the word at an address have a value: `sleep_while(where, value, nanoseconds)`.

Returns when they differ, after `wake_sleepers`, after this time, or for no reason: look again. The kernel compares and
goes to sleep in one step, so a thread that changes the word and then calls `wake_sleepers` cannot be missed.
"""


def _now(b: Any) -> Any:
    kind = ir.FunctionType(INT, [INT, ir.ArrayType(WORD, 2).as_pointer()])
    function = codegen.get_or_insert_function(b.module, kind, "clock_gettime")
    where = codegen.alloca_once(b, ir.ArrayType(WORD, 2))
    b.call(function, [INT(_MONOTONIC), where])
    seconds, rest = (b.load(b.gep(where, [INT(0), INT(i)])) for i in range(2))
    return b.add(b.mul(seconds, WORD(1_000_000_000)), rest)


now: Callable[[], int] = define(_now, "int64")
"""The system's monotonic clock in nanoseconds, as `time.monotonic_ns`."""
wake_sleepers: Callable[[int, int], None] = define(_wake_sleepers, "void", "int64", "int64")
"""Wake up to `count` threads that sleep at an address: `wake_sleepers(where, count)`."""


@inline
def spin_or_nap(where: int, value: int, spins: int) -> int:
    """Wait a little for a word that has a value to change; returns the number of calls so far, `spins` before.

    Mostly it spins. Now and then it sleeps for a short time: the thread that is waited for may be suspended, and the
    system moves it to a core that is idle, not to one on which another thread spins.
    """
    if spins % SPINS == SPINS - 1:
        sleep_while(where, value & 0xFFFFFFFF, NAP_NANOSECONDS)
    else:
        pause()
    return spins + 1


# An event counter: two words, the counter and the number of sleepers. A thread that waits reads the counter, looks for
# work, and if there is none waits for a change of the counter. A thread that brings work publishes it and then signals.


@inline
def signal_event(event: int) -> None:
    """Count up and wake all that wait; to be called after the work was published."""
    atomic_add(event, 1)
    fence()  # the count before the look at the sleepers: a thread that goes to sleep does both in the other order
    if atomic_load(event + 8) > 0:
        wake_sleepers(event, ALL)


@inline
def await_event(event: int, seen: int, nanoseconds: int) -> None:
    """Wait until the counter differs from `seen`, read with `atomic_load` before looking for work; or for a time."""
    for _ in range(SPINS):
        if atomic_load(event) != seen:
            return
        pause()
    atomic_add(event + 8, 1)
    fence()
    if sc_load(event) == seen:
        sleep_while(event, seen & 0xFFFFFFFF, nanoseconds)
    atomic_add(event + 8, -1)
