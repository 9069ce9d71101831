"""The `spo_bits` unit on the CPU: the bit arrays of rectangle queries over a block of tuples (SPO-Join, section 3.4).

Buffers: ranks of the tuples (key A in the low 16 bits, key B in the high 16 bits), boxes (six bounds per query), bits
(out), counts (out). Scalars: positions of the block, queries, whether bits are wanted. Their layout is that of
`gpu/kernels/spo_bits.cu`. In host memory the engines of `table.py` and `stream.py` are faster; the unit lets the CPU
stand for a device with memory of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import auto

import numpy as np

from millrace.host.base.types import Array
from millrace.host.device.units import TILE_ROWS
from millrace.host.runtime.intrinsics import load, load_as, store_as
from millrace.host.runtime.jit import share
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.team import Team

SLICE = 1 << 6
"""About how many (tile, query) combinations one thread takes at a time."""
_U32 = np.uint32


class _Args(KernelArgs):
    """The arguments of the kernel."""

    RANKS = auto()
    BOXES = auto()
    BITS = auto()
    COUNTS = auto()
    N = auto()
    M = auto()
    WANT = auto()
    ITEMS = auto()


@share
def _mark(given: int, part: int, parts: int) -> None:
    """Compare the ranks of some tiles with some queries."""
    ranks, boxes, bits = load(given, _Args.RANKS), load(given, _Args.BOXES), load(given, _Args.BITS)
    n, m, items = load(given, _Args.N), load(given, _Args.M), load(given, _Args.ITEMS)
    for item in range(items * part // parts, items * (part + 1) // parts):
        tile, q = item // m, item % m
        a_low, a_high = int(load_as(boxes, q, _U32(0))), int(load_as(boxes, m + q, _U32(0)))
        b_low, b_high = int(load_as(boxes, 2 * m + q, _U32(0))), int(load_as(boxes, 3 * m + q, _U32(0)))
        seen, unseen = int(load_as(boxes, 4 * m + q, _U32(0))), int(load_as(boxes, 5 * m + q, _U32(0)))
        count = 0
        for first in range(tile * TILE_ROWS, min((tile + 1) * TILE_ROWS, n), 32):
            found = 0
            for i in range(max(first, seen), min(first + 32, n, unseen)):
                both = int(load_as(ranks, i, _U32(0)))
                a, b = both & 0xFFFF, both >> 16
                hit = int((a >= a_low) & (a < a_high) & (b >= b_low) & (b < b_high))
                found |= hit << (i - first)
                count += hit
            if load(given, _Args.WANT):
                store_as(bits, (first >> 5) * m + q, _U32(found))
        store_as(load(given, _Args.COUNTS), item, _U32(count))


def spo_bits(arrays: Sequence[Array], scalars: Sequence[int], team: Team) -> int:
    """Write bits and counts. Returns the number of (tile, query) combinations."""
    ranks, boxes, bits, counts = arrays
    n, m, want = scalars
    items = -(-n // TILE_ROWS) * m
    given = _Args.pack(RANKS=ranks, BOXES=boxes, BITS=bits, COUNTS=counts, N=n, M=m, WANT=want, ITEMS=items)
    team.run(_mark, given, max(-(-items // SLICE), 1))
    return items
