"""Reads the inline values of a tree: by position, and for ranges of positions.

Without inline values, a value is its position: the row number of keys that were already sorted. (Thesis, appendix A,
4.1.) Limit: offsets are 32-bit, so one call copies up to 2**31 - 1 values.
"""

from __future__ import annotations

from enum import auto

import numpy as np
import numpy.typing as npt

from millrace.host.base.types import Array
from millrace.host.hbtree.leaves import Leaves
from millrace.host.runtime.intrinsics import load, load_as, prefetch, store_as
from millrace.host.runtime.jit import share
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.team import Team

Positions = npt.NDArray[np.int64]
SLICE = 1 << 12
"""Ranges per task of a thread."""
_AHEAD = 16


class _Args(KernelArgs):
    """The arguments of `spread`."""

    STARTS = auto()
    OFFSETS = auto()
    COUNT = auto()
    LEAVES = auto()
    STRIDE = auto()
    BITS = auto()
    OFFSET = auto()
    WIDTH = auto()
    OUT = auto()


@share
def _spread(args: int, part: int, parts: int) -> None:
    """Copy the values of some ranges to their output slots."""
    starts, offsets, out = load(args, _Args.STARTS), load(args, _Args.OFFSETS), load(args, _Args.OUT)
    leaves, stride, bits = load(args, _Args.LEAVES), load(args, _Args.STRIDE), load(args, _Args.BITS)
    offset, per_leaf = load(args, _Args.OFFSET), 1 << bits
    count, width = load(args, _Args.COUNT), load(args, _Args.WIDTH)
    stop = count * (part + 1) // parts
    for i in range(count * part // parts, stop):
        if i + _AHEAD < stop and width > 0:
            ahead = leaves + (load_as(starts, i + _AHEAD, 0) >> bits) * stride + offset
            prefetch(ahead)
            prefetch(ahead + stride)
        at, end = np.int64(load_as(offsets, i, np.int32(0))), np.int64(load_as(offsets, i + 1, np.int32(0)))
        position = load_as(starts, i, 0)
        line, lane = position >> bits, position & (per_leaf - 1)
        for slot in range(at, end):
            where = leaves + line * stride + offset
            if width == 8:
                store_as(out, slot, load_as(where, lane, 0))
            elif width == 4:
                store_as(out, slot, load_as(where, lane, np.int32(0)))
            else:
                store_as(out, slot, position + slot - at)
            lane += 1
            if lane == per_leaf:
                line, lane = line + 1, 0


def spread(leaves: Leaves, starts: Positions, offsets: npt.NDArray[np.int32], out: Array, team: Team) -> None:
    """Copy the values of `offsets[i + 1] - offsets[i]` positions from `starts[i]` on into `out`, for each i."""
    args = _Args.pack(
        STARTS=starts,
        OFFSETS=offsets,
        COUNT=len(starts),
        LEAVES=leaves.data,
        STRIDE=leaves.stride,
        BITS=leaves.per_leaf.bit_length() - 1,
        OFFSET=leaves.offset,
        WIDTH=leaves.width,
        OUT=out,
    )
    if len(starts):
        team.run(_spread, args, -(-len(starts) // SLICE))


def gather(leaves: Leaves, positions: Positions) -> Array:
    """The values at positions, as numbers of their width; without inline values, the positions."""
    if leaves.width == 0:
        return positions
    rows = leaves.data.reshape(leaves.lines, leaves.stride)[:, leaves.offset :].view(f"u{leaves.width}")
    found: Array = rows[positions // leaves.per_leaf, positions % leaves.per_leaf]
    return found
