"""The arena: no block is in use twice, arrays are aligned, and only its own blocks are taken back."""

from __future__ import annotations

import numpy as np
import pytest

from millrace.host.runtime.arena import MAX_KEPT, Arena, ArenaCache
from millrace.host.runtime.huge_pages import SPARE
from millrace.host.runtime.intrinsics import address


def test_arrays_are_aligned_and_have_the_requested_size() -> None:
    arena = Arena()
    for size in (0, 1, 7, 1000, 65_536, 100_001):
        array = arena.take(size, np.uint32)
        assert (len(array), array.dtype) == (size, np.dtype(np.uint32))
        assert address(array) % SPARE == 0


def test_a_returned_block_is_reused_and_never_in_use_twice() -> None:
    arena = Arena()
    first = arena.take(1000, np.int64)
    where = address(first)
    arena.give(first)
    again, other = arena.take(1000, np.int64), arena.take(1000, np.int64)
    assert address(again) == where
    assert address(other) != where


def test_foreign_memory_is_not_reused() -> None:
    arena = Arena()
    mine = np.arange(1000, dtype=np.int64)
    arena.give(mine)
    arena.give(mine[10:])
    arena.give(np.frombuffer(b"x" * 8000, np.int64))
    taken = [arena.take(1000, np.int64) for _ in range(4)]
    for array in taken:
        array[:] = 0
    assert mine.tolist() == list(range(1000))


def test_no_more_is_kept_than_allowed() -> None:
    arena = Arena()
    arrays = [arena.take(MAX_KEPT // 4, np.uint8) for _ in range(6)]
    for array in arrays:
        arena.give(array)
    assert arena._kept <= MAX_KEPT


def test_one_arena_is_kept_for_the_next_user() -> None:
    Arena._spare.clear()
    first = Arena.borrow()
    array = first.take(1000, np.int64)
    where = address(array)
    first.give(array)
    first.leave()
    Arena().leave()  # one is kept already
    again, other = Arena.borrow(), Arena.borrow()
    assert again is first
    assert address(again.take(1000, np.int64)) == where
    assert other is not first


def test_an_arena_cache_keeps_one_arena_and_none_of_a_failed_call() -> None:
    cache = ArenaCache()
    with cache.use() as first, cache.use() as other:
        assert first is not other
    with cache.use() as again:
        assert again is first
    with cache.use(keep=False) as last:
        assert last is first
    with pytest.raises(ValueError, match="no"), cache.use():
        raise ValueError("no")
    assert not cache.kept
