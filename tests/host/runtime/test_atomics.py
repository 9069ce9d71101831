"""Atomics and the spin lock under stress: threads in compiled code that race for the same words."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
import pytest

from millrace.host.base.types import Array
from millrace.host.runtime.intrinsics import (
    address,
    atomic_add,
    atomic_load,
    atomic_store,
    atomic_swap_if,
    fence,
    load,
    sc_exchange,
    sc_load,
    sc_store,
    store,
)
from millrace.host.runtime.jit import inline, kernel
from millrace.host.runtime.spin_lock import acquire_lock, release_lock, spin_acquire, spin_release, try_lock
from millrace.host.runtime.thread_sleep import await_event, signal_event, sleep_while, wake_sleepers

LINE = 8
"""Words of a cache line: words that threads race for are that far apart."""
SECOND = 1_000_000_000


def run_together(work: Callable[..., object], *given: tuple[Any, ...]) -> None:
    """Run a kernel in one thread per tuple of arguments, until all have ended."""
    threads = [threading.Thread(target=work, args=one, daemon=True) for one in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def lines(count: int) -> tuple[Array, int]:
    """Zeroed cache lines: the array, which the caller keeps, and the address of its first full line."""
    words = np.zeros(LINE * (count + 1), np.int64)
    return words, -(-address(words) // 64) * 64


@kernel
def _all_operations(where: int, out: Any) -> None:
    sc_store(where, 5)
    out[0], out[1], out[2] = sc_load(where), sc_exchange(where, 9), sc_load(where)
    fence()
    out[3], out[4] = try_lock(where), try_lock(where + 64)
    out[5] = try_lock(where + 64)
    release_lock(where + 64)
    acquire_lock(where + 64)
    out[6] = sc_load(where + 64)
    sleep_while(where, 8, SECOND)  # the word is not 8: returns at once
    sleep_while(where, 9, 1000)
    wake_sleepers(where, 1)


def test_each_operation_alone() -> None:
    memory, where = lines(2)
    out = np.zeros(7, np.int64)
    _all_operations(where, out)
    assert out.tolist() == [5, 5, 9, 0, 1, 0, 1]
    assert memory.any()


@inline
def _meet(where: int, turn: int) -> None:
    """Wait until both threads have called this for a turn."""
    atomic_add(where, 1)
    signal_event(where + 64)
    while True:
        seen = atomic_load(where + 64)
        if atomic_load(where) >= 2 * turn:
            return
        await_event(where + 64, seen, SECOND)


@kernel
def _store_then_load(where: int, own: int, rounds: int, out: int) -> None:
    """Store to the own word, then load the other's: the first step of Dekker's mutual exclusion."""
    for i in range(rounds):
        _meet(where, i + 1)
        sc_store(where + 128 + 64 * own, i + 1)
        store(out, i, sc_load(where + 128 + 64 * (1 - own)))


@kernel
def _store_fence_load(where: int, own: int, rounds: int, out: int) -> None:
    """The same with a release store and an acquire load, and a fence between them."""
    for i in range(rounds):
        _meet(where, i + 1)
        atomic_store(where + 128 + 64 * own, i + 1)
        fence()
        store(out, i, atomic_load(where + 128 + 64 * (1 - own)))


@pytest.mark.parametrize("work", [_store_then_load, _store_fence_load])
def test_of_two_threads_that_store_and_look_one_sees_the_other(work: Callable[..., None]) -> None:
    rounds = 20_000
    memory, where = lines(4)
    seen = np.zeros((2, rounds), np.int64)
    run_together(work, *((where, own, rounds, address(seen[own])) for own in (0, 1)))
    current = np.arange(1, rounds + 1)
    assert not ((seen[0] < current) & (seen[1] < current)).any()
    assert memory.any()


@kernel
def _give_away(where: int, rounds: int, out: int) -> None:
    """Exchange numbered values with a common word; each value is received by one thread."""
    for i in range(rounds):
        store(out, i, sc_exchange(where, load(out, i)))


def test_an_exchange_loses_and_doubles_nothing() -> None:
    threads, rounds = 4, 50_000
    memory, where = lines(1)
    values = np.arange(1, threads * rounds + 1).reshape(threads, rounds)
    run_together(_give_away, *((where, rounds, address(values[i])) for i in range(threads)))
    left = [int(word) for word in memory if word]
    assert sorted(values.ravel().tolist() + left) == list(range(threads * rounds + 1))


@kernel
def _count_with_lock(lock: int, counters: int, rounds: int, pauses: int, tries: bool) -> None:
    """Add to two ordinary words under the lock; some holders sleep, so that others must sleep too."""
    for i in range(rounds):
        if tries:
            while not try_lock(lock):
                sleep_while(lock, 1, 10_000)
        else:
            acquire_lock(lock)
        first = load(counters, 0)
        store(counters, 0, first + 1)
        if i % pauses == 0:
            sleep_while(counters + 64, 0, 20_000)
        store(counters, 1, load(counters, 1) + load(counters, 0) - first)
        release_lock(lock)


@pytest.mark.parametrize("threads", [2, 7])
@pytest.mark.parametrize("count", ["_count_with_lock", "_count_with_spin_lock"])
def test_a_lock_excludes_others_also_when_holders_sleep(threads: int, count: str) -> None:
    rounds = 8000
    memory, where = lines(3)
    given = [(where, where + 64, rounds, 500, i == 1) for i in range(threads)]
    run_together(globals()[count], *given)
    total = threads * rounds
    assert sorted(memory[memory != 0].tolist()) == [total, total]


@kernel
def _count_with_spin_lock(lock: int, counters: int, rounds: int, pauses: int, tries: bool) -> None:
    """The same with the lock of short sections; a holder that sleeps is as one that was suspended."""
    for i in range(rounds):
        spin_acquire(lock)
        first = load(counters, 0)
        store(counters, 0, first + 1)
        if i % pauses == 0:
            sleep_while(counters + 64, 0, 20_000)
        store(counters, 1, load(counters, 1) + load(counters, 0) - first)
        spin_release(lock)


@kernel
def _play(where: int, own: int, rounds: int) -> None:
    """Two threads in turn count up a word; the other one sleeps meanwhile. A lost wake-up would take a second."""
    for i in range(own, 2 * rounds, 2):
        while atomic_load(where) != i:
            seen = atomic_load(where + 64)
            if atomic_load(where) != i:
                await_event(where + 64, seen, SECOND)
        atomic_store(where, i + 1)
        signal_event(where + 64)


def test_threads_that_take_turns_wake_each_other() -> None:
    rounds = 5000
    memory, where = lines(2)
    run_together(_play, (where, 0, rounds), (where, 1, rounds))
    assert memory.max() == 2 * rounds


@kernel
def _one_of_each(where: int) -> int:
    atomic_store(where, atomic_load(where + 64))
    sc_store(where + 128, sc_load(where + 192))
    fence()
    if atomic_swap_if(where, 1, 2):
        return sc_exchange(where, 3)
    return atomic_add(where, 4)


def test_the_same_code_for_arm_has_the_ordered_instructions() -> None:
    """Compiled for ARM from the code that runs here. x86 orders most accesses by itself, ARM orders none."""
    fresh = numba.njit(nogil=True)(_one_of_each.py_func)  # type: ignore[attr-defined] # a cached kernel has no code
    fresh(lines(4)[1])
    ((_, text),) = fresh.inspect_llvm().items()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    arm = llvm.Target.from_triple("aarch64-unknown-linux-gnu").create_target_machine(features="+lse")
    text = re.sub(r'target triple = ".*"', 'target triple = "aarch64-unknown-linux-gnu"', text)
    text = re.sub(r'target datalayout = ".*"', f'target datalayout = "{arm.target_data}"', text)
    body = arm.emit_assembly(llvm.parse_assembly(text)).partition("cfunc")[0]
    found = set(re.findall(r"\b(ldar|ldapr|stlr|dmb\s+ish|casal|swpal|ldaddal)\b", body))
    assert {"stlr", "casal", "swpal", "ldaddal"} <= found
    assert any(one.startswith("dmb") for one in found)
    assert found & {"ldar", "ldapr"}
