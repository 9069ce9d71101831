"""The intrinsics against plain Python, for words of both widths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from millrace.host.base.types import Array
from millrace.host.runtime import intrinsics as i_
from millrace.host.runtime.intrinsics import address
from millrace.host.runtime.jit import kernel

WORDS = [np.uint32, np.uint64]
BOUNDS = [0, 1, 5, 39, 40, 2**32 - 1]


@kernel
def _compare(where: int, low: Any, high: Any, out: Any) -> None:
    out[0], out[1] = i_.inside(where, low, high), i_.within(where, 0, np.uint64(low), np.uint64(high - low), low)
    out[2], out[3] = i_.leading_below(where, low), i_.leading_upto(where, low)
    out[4], out[5] = i_.lines_below(where, low), i_.lines_upto(where, low)
    out[6], out[7] = i_.line_below(where, low), i_.line_upto(where, low)
    out[8], out[9] = i_.half_below(where, low), i_.half_upto(where, low)


def leading(words: Array, flags: Array) -> int:
    """How many words come before the first flag."""
    return int(np.argmax(flags)) if flags.any() else len(words)


@pytest.mark.parametrize("dtype", WORDS)
@pytest.mark.parametrize("low", BOUNDS)
@pytest.mark.parametrize("high", BOUNDS)
def test_words_are_compared_as_unsigned_numbers(dtype: type, low: int, high: int) -> None:
    if high < low:
        return
    words: Array = np.sort(np.random.default_rng(low + high).integers(0, 41, 32)).astype(dtype)
    words[-1] = 2**32 - 1
    out = np.zeros(10, np.int64)
    _compare(address(words), dtype(low), dtype(high), out)
    found = (words >= low) & (words <= high)
    line = 64 // words.itemsize
    expected = [sum(1 << i for i in range(n) if found[i]) for n in (8, 16)]
    for n in (8, 32, line, line // 2):
        expected += [leading(words[:n], words[:n] >= low), leading(words[:n], words[:n] > low)]
    assert out.tolist() == expected


@kernel
def _copy(source: int, to: int, ids: int, out: Any) -> None:
    for i in range(8):
        i_.store(to, i, i_.load(source, i))
    out[0], out[1] = i_.load_byte(source, 9), i_.load_id(source, 3)
    i_.move_line(source, to + 64)
    i_.stream_line(source, to + 128)
    i_.fence_streams()
    i_.move_bytes(to + 192, source, 64)
    i_.fill_bytes(to + 256, 64)
    i_.widen_ids(ids, 1000, to + 320)
    i_.copy_ids(ids, 2000, to + 352, 3)
    i_.store_sorted(to + 384, 7, -3, 9, 0)
    i_.prefetch(source)
    i_.prefetch_far(source)
    i_.touch(source)


def test_memory_is_copied_widened_and_sorted() -> None:
    source = np.random.default_rng(1).integers(-(2**62), 2**62, 8)
    memory, ids = np.zeros(128, np.int64), np.array([5, 2**32 - 1, 0, 9], np.uint32)
    skip = -address(memory) // 8 % 8  # streamed lines are aligned
    to, out = memory[skip : skip + 64], np.zeros(2, np.int64)
    _copy(address(source), address(to), address(ids), out)
    assert out.tolist() == [source.view(np.uint8)[9], source.view(np.uint32)[3]]
    for i in range(4):
        assert to[8 * i : 8 * i + 8].tolist() == source.tolist()
    assert to[32:40].tolist() == [-1] * 8
    assert to[40:44].tolist() == [1000 + int(i) for i in ids]
    assert to[44:48].tolist() == [2000 + int(i) for i in ids[:3]] + [0]
    assert to[48:52].tolist() == [-3, 0, 7, 9]


@kernel
def _atomics(where: int, out: Any) -> None:
    words = i_.stack_words(4)
    i_.atomic_store(words, 5)
    out[0], out[1] = i_.atomic_add(words, 3), i_.atomic_load(words)
    out[2], out[3] = i_.atomic_swap_if(words, 5, 1), i_.atomic_swap_if(words, 8, 1)
    out[4], out[5], out[6] = i_.atomic_load(words), i_.ones(0b1011), i_.lowest_bit(0b1000)
    out[7], out[8], out[9] = i_.lowest_bit(0), i_.size_of(np.uint32(0)), i_.size_of(np.uint64(0))
    i_.store_as(where, 3, np.uint16(77))
    out[10] = i_.load_as(where, 3, np.uint16(0))


def test_atomics_bits_and_sizes() -> None:
    out, memory = np.zeros(11, np.int64), np.zeros(4, np.uint16)
    _atomics(address(memory), out)
    assert out.tolist() == [5, 8, 0, 1, 1, 3, 3, 64, 4, 8, 77]
    assert memory.tolist() == [0, 0, 0, 77]
