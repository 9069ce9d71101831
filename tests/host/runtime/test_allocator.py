"""The allocator: no block is in use twice, memory is reused after its last reference, and only so much is kept."""

from __future__ import annotations

import gc
import mmap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from millrace.host.base.types import Array
from millrace.host.runtime import allocator as module
from millrace.host.runtime.allocator import MAX_KEPT, MIN_RESULT, SPARE, Allocator, result_array
from millrace.host.runtime.intrinsics import address, load_as
from millrace.host.runtime.jit import kernel
from tests.host.runtime.test_pool import in_child

SIZES = (0, 1, 7, 1000, 65_536, 100_001, 1 << 21)


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> Allocator:
    """An allocator that keeps nothing yet; `result_array` uses it too."""
    made = Allocator()
    monkeypatch.setattr(module, "_allocator", made)
    return made


@kernel
def _last_spare_byte(where: int) -> int:
    return load_as(where, SPARE - 1, np.uint8(0))  # type: ignore[no-any-return]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.int64])
def test_arrays_are_aligned_padded_and_have_the_requested_size(memory: Allocator, dtype: type) -> None:
    for size in SIZES:
        array = memory.allocate(size, dtype)
        assert (len(array), array.dtype, address(array) % 4096) == (size, np.dtype(dtype), 0)
        array[:] = 5
        assert _last_spare_byte(address(array) + array.nbytes) >= 0


def test_a_freed_block_is_reused_once(memory: Allocator) -> None:
    first = memory.allocate(1000, np.int64)
    where = address(first)
    memory.free(first)
    again, other = memory.allocate(1000, np.int64), memory.allocate(1000, np.int64)
    assert address(again) == where
    assert address(other) != where


@pytest.mark.parametrize("view", [lambda a: a, lambda a: a[10:], lambda a: a.view(np.uint32)])
@pytest.mark.parametrize("size", [0, 1000])
def test_freeing_an_array_twice_does_nothing(memory: Allocator, size: int, view: Callable[[Array], Array]) -> None:
    """Neither at once nor after the block has a new user."""
    first = memory.allocate(size, np.int64)
    memory.free(first)
    memory.free(view(first))
    second = memory.allocate(size, np.int64)
    memory.free(view(first))
    del first
    others = [memory.allocate(size, np.int64) for _ in range(4)]
    assert len({address(array) for array in (second, *others)}) == 5


def test_one_of_many_threads_that_free_an_array_frees_it(memory: Allocator) -> None:
    start = threading.Barrier(4)

    def free(array: Array) -> None:
        start.wait()
        memory.free(array)

    with ThreadPoolExecutor(4) as threads:
        for _ in range(50):
            array = memory.allocate(1000, np.int64)
            list(threads.map(free, [array] * 4))
            assert memory.kept == module.size_class(8000)
            del array


def test_arrays_from_elsewhere_are_ignored(memory: Allocator) -> None:
    mine = np.zeros(1000, np.int64)
    for other in (mine, mine[10:], np.frombuffer(b"x" * 8000, np.int64), Allocator().allocate(1000, np.int64)):
        memory.free(other)
    assert memory.kept == 0
    taken = [memory.allocate(1000, np.int64) for _ in range(4)]
    for array in taken:
        array[:] = 7
    assert (mine == 0).all()


def test_no_more_is_kept_than_allowed() -> None:
    memory = Allocator(max_lent=0)
    arrays = [memory.allocate(MAX_KEPT // 4, np.uint8) for _ in range(6)]
    for array in arrays:
        memory.free(array)
    assert MAX_KEPT // 2 <= memory.kept <= MAX_KEPT
    memory.free(memory.allocate(MAX_KEPT + 1, np.uint8))
    assert memory.kept <= MAX_KEPT


@pytest.mark.skipif(not hasattr(mmap, "MADV_FREE"), reason="the system cannot take back memory that stays mapped")
def test_blocks_beyond_the_limit_are_lent_to_the_system_and_reused() -> None:
    size = 1 << 22
    memory = Allocator(max_kept=size, max_lent=2 * size)
    arrays = [memory.allocate(size, np.uint8) for _ in range(4)]
    addresses = {address(array) for array in arrays}
    for array in arrays:
        array[:] = 7
    lent_before = _lazily_free_bytes()
    for array in arrays:
        memory.free(array)
    assert memory.kept == 3 * size
    if lent_before is not None:
        assert (_lazily_free_bytes() or 0) > lent_before
    again = [memory.allocate(size, np.uint8) for _ in range(3)]
    assert {address(array) for array in again} < addresses
    for i, array in enumerate(again):
        array[:] = i
    assert all((array == i).all() for i, array in enumerate(again)), "the system takes no page that is in use"
    assert memory.kept == 0


def _lazily_free_bytes() -> int | None:
    """Bytes of this process that the system can take back, on Linux."""
    report = Path("/proc/self/smaps_rollup")
    lines = report.read_text().splitlines() if report.exists() else []
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("LazyFree")), None)


def test_trimming_unmaps_what_is_kept_and_nothing_else() -> None:
    memory = Allocator(max_kept=1 << 21)
    held, *others = [memory.allocate(1 << 21, np.uint8) for _ in range(3)]
    held[:] = 9
    for array in others:
        memory.free(array)
    kept = memory.kept
    assert (memory.trim(), memory.kept, memory.trim()) == (kept, 0, 0)
    assert (held == 9).all()
    memory.free(held)
    assert memory.kept == len(held)


def test_an_idle_process_trims_itself_again_and_again() -> None:
    memory = Allocator(idle=0.05)
    for _ in range(2):
        memory.free(memory.allocate(1 << 21, np.uint8))
        while memory.kept or memory._trimmer is not None:  # a trimmer ends when no block is left
            time.sleep(0.01)


def test_sizes_that_are_no_longer_used_make_room() -> None:
    memory = Allocator(1 << 20, max_lent=0)
    for size in (1 << 18, 1 << 19, 1 << 16):
        for array in [memory.allocate(size, np.uint8) for _ in range(4)]:
            memory.free(array)
    assert memory.kept <= 1 << 20
    where = address(memory.allocate(1 << 16, np.uint8))
    assert address(memory.allocate(1 << 16, np.uint8)) == where


@pytest.mark.parametrize("make", ["allocate", "result_array"])
def test_memory_is_reused_after_the_last_reference(memory: Allocator, make: str) -> None:
    allocate = memory.allocate if make == "allocate" else result_array
    first = allocate(MIN_RESULT, np.int64)
    where = address(first)
    del first
    assert address(allocate(MIN_RESULT - 5, np.uint64)) == where


@pytest.mark.parametrize("wrap", [lambda a: a[3:], lambda a: a.view(np.uint32), pa.array, pa.py_buffer, memoryview])
def test_every_view_of_a_result_keeps_it(wrap: object) -> None:
    array = result_array(MIN_RESULT, np.int64)
    array[:] = 7
    where, held = address(array), wrap(array)  # type: ignore[operator]
    del array
    gc.collect()
    others = [result_array(MIN_RESULT, np.int64) for _ in range(3)]
    for other in others:
        other[:] = 8
    assert where not in [address(other) for other in others]
    assert set(np.frombuffer(held, np.int64) if not isinstance(held, pa.Array) else held.to_numpy()) == {7} or (
        isinstance(held, np.ndarray) and held.dtype == np.uint32
    )
    del held
    assert address(result_array(MIN_RESULT, np.int64)) == where


def test_dropped_results_are_kept_up_to_the_limit(memory: Allocator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_max_kept", 5 * MIN_RESULT)
    monkeypatch.setattr(memory, "_max_lent", 0)
    arrays = [result_array(2 * MIN_RESULT, np.uint8) for _ in range(4)]
    arrays.clear()
    assert memory.kept == 4 * MIN_RESULT


def test_small_results_are_plain_arrays(memory: Allocator) -> None:
    assert result_array(10, np.int64).base is None
    assert memory.kept == 0


def test_a_reference_dropped_while_the_lock_is_held_returns_its_block(memory: Allocator) -> None:
    """As the garbage collector may do inside of the allocator itself."""
    array = memory.allocate(1000, np.int64)
    with memory._lock:
        del array
        assert memory.kept > 0


def test_bytes_in_use_are_those_of_live_arrays(memory: Allocator) -> None:
    first, second = memory.allocate(1 << 12, np.uint8), memory.allocate(1 << 20, np.uint8)
    assert memory.in_use == (1 << 12) + (1 << 20)
    memory.free(first)
    assert memory.in_use == 1 << 20
    del second
    assert memory.in_use == 0


def test_threads_never_share_a_block(memory: Allocator) -> None:
    def work(number: int) -> bool:
        good = True
        for turn in range(300):
            arrays = [memory.allocate(900 + turn, np.int64) for _ in range(3)]
            for i, array in enumerate(arrays):
                array[:] = 10 * number + i
            good = good and all((array == 10 * number + i).all() for i, array in enumerate(arrays))
            memory.free(arrays[turn % 3])
        return good

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(4)))


def test_a_forked_child_keeps_nothing_and_is_not_locked(memory: Allocator) -> None:
    held, freed = memory.allocate(1000, np.int64), memory.allocate(1000, np.int64)
    held[:] = 3
    memory.free(freed)

    def child() -> bool:
        empty = memory.kept == 0
        memory.free(held)
        return empty and memory.kept > 0 and address(memory.allocate(1000, np.int64)) == address(held)

    with memory._lock:
        assert in_child(child) == 0
    assert (held == 3).all()
