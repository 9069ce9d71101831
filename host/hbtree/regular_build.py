"""Copies packed leaves into lines with free places: the leaves of a fresh regular HB+-Tree.

Every line but the last gets the same number of words. Lines of the last big leaf that nothing goes to are free places
all over. Where the packed leaves have no values, a word's value is its position.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.hbtree.leaves import Leaves, largest
from millrace.host.runtime.huge_pages import huge_array
from millrace.host.runtime.intrinsics import load_as, size_of, store_as, table
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.team import Team

SLICE = 1 << 13
"""Lines that one thread fills at a time."""
_SOURCE, _STRIDE, _BITS, _OFFSET, _SOURCE_WIDTH, _OUT, _OUT_STRIDE, _OUT_LANES, _WIDTH, _USED, _SIZE, _LINES = range(12)


@inline
def _loosen(given: int, part: int, parts: int, like: Any) -> None:
    source, stride, bits = load_as(given, _SOURCE, 0), load_as(given, _STRIDE, 0), load_as(given, _BITS, 0)
    offset, source_width = load_as(given, _OFFSET, 0), load_as(given, _SOURCE_WIDTH, 0)
    out, out_stride, lanes = load_as(given, _OUT, 0), load_as(given, _OUT_STRIDE, 0), load_as(given, _OUT_LANES, 0)
    width, used = load_as(given, _WIDTH, 0), load_as(given, _USED, 0)
    size, lines = load_as(given, _SIZE, 0), load_as(given, _LINES, 0)
    mask = (1 << bits) - 1
    for line in range(lines * part // parts, lines * (part + 1) // parts):
        where = out + line * out_stride
        values, first = where + lanes * size_of(like), line * used
        count = min(max(size - first, 0), used)
        for i in range(count):
            old = source + ((first + i) >> bits) * stride
            store_as(where, i, load_as(old, (first + i) & mask, like))
        for i in range(count, lanes):
            store_as(where, i, largest(like))
        if source_width == 8:
            for i in range(count):
                old = source + ((first + i) >> bits) * stride + offset
                store_as(values, i, load_as(old, (first + i) & mask, np.uint64(0)))
        elif source_width == 4:
            for i in range(count):
                old = source + ((first + i) >> bits) * stride + offset
                store_as(values, i, load_as(old, (first + i) & mask, np.uint32(0)))
        elif width == 8:
            for i in range(count):
                store_as(values, i, first + i)
        else:
            for i in range(count):
                store_as(values, i, np.uint32(first + i))


@share
def _loosen_32(given: int, part: int, parts: int) -> None:
    _loosen(given, part, parts, np.uint32(0))


@share
def _loosen_64(given: int, part: int, parts: int) -> None:
    _loosen(given, part, parts, np.uint64(0))


def loosen(leaves: Leaves, width: int, size: int, used: int, most: int, lines: int, team: Team) -> tuple[Array, Array]:
    """The first `size` rows in `lines` lines, `used` to a line, with room for `most`; and the values of the others."""
    loose = Leaves(np.zeros(0, np.uint8), leaves.word, size, width)
    data = huge_array(most * loose.stride, np.uint8)
    given = table(
        *(leaves.data, leaves.stride, leaves.per_leaf.bit_length() - 1, leaves.offset, leaves.width),
        *(data, loose.stride, loose.per_leaf, width, used, size, lines),
    )
    team.run(_loosen_64 if leaves.word.itemsize == 8 else _loosen_32, given, -(-lines // SLICE))
    kind = np.dtype(f"u{width}")
    rest = np.arange(size, leaves.size)
    if leaves.width:
        rows = leaves.data.reshape(leaves.lines, leaves.stride)[:, leaves.offset :].view(kind)
        return data, rows[rest // leaves.per_leaf, rest % leaves.per_leaf]
    return data, rest.astype(kind)
