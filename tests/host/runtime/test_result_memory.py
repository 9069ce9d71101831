"""Memory of results: it is reused after the last reference is gone, and never before."""

from __future__ import annotations

import gc

import numpy as np
import pyarrow as pa
import pytest

from millrace.host.runtime import result_memory
from millrace.host.runtime.intrinsics import address
from millrace.host.runtime.result_memory import MIN_BYTES, result_array


@pytest.fixture(autouse=True)
def _no_free_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_memory, "_free_blocks", {})


def test_memory_is_reused_after_the_last_reference() -> None:
    first = result_array(MIN_BYTES, np.int64)
    where = address(first)
    del first
    assert address(result_array(MIN_BYTES - 5, np.uint64)) == where


@pytest.mark.parametrize("wrap", [lambda a: a[3:], lambda a: a.view(np.uint32), pa.array, pa.py_buffer, memoryview])
def test_every_view_of_a_result_keeps_it(wrap: object) -> None:
    array = result_array(MIN_BYTES, np.int64)
    array[:] = 7
    where, held = address(array), wrap(array)  # type: ignore[operator]
    del array
    gc.collect()
    others = [result_array(MIN_BYTES, np.int64) for _ in range(3)]
    for other in others:
        other[:] = 8
    assert where not in [address(other) for other in others]
    assert set(np.frombuffer(held, np.int64) if not isinstance(held, pa.Array) else held.to_numpy()) == {7} or (
        isinstance(held, np.ndarray) and held.dtype == np.uint32
    )
    del held
    assert address(result_array(MIN_BYTES, np.int64)) == where


def test_no_more_is_kept_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_memory, "MAX_KEPT", 5 * MIN_BYTES)
    arrays = [result_array(2 * MIN_BYTES, np.uint8) for _ in range(4)]
    arrays.clear()
    assert sum(block.nbytes for blocks in result_memory._free_blocks.values() for block in blocks) == 4 * MIN_BYTES


def test_small_results_are_plain_arrays() -> None:
    assert result_array(10, np.int64).base is None
    assert not result_memory._free_blocks
