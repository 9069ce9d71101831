"""The `bisort_merger` unit on the CPU: two sorted runs to one (PanJoin, III-D and Figure 8), on all threads.

Buffers: words and ids of run a, words and ids of run b, words, ids and index of the result. Scalars: the two lengths,
the step of the index. Equal words: a before b. The index is sampled from the merged run: `index[i]` is word
`i * step`. Each thread takes slices of the result and finds their beginnings by binary search (merge path). It merges
the two halves of a slice in an interleaved loop: each tuple of one merge depends on the previous one, so two
independent merges keep the core busy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import auto
from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.kernels.merging import split_merge
from millrace.host.runtime.intrinsics import load, load_as, store_as
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.team import Team

MAX_ALONE = 1 << 14
"""So many tuples are merged at once by the caller: waking a helper thread takes as long."""
SLICE = 1 << 13
"""About how many tuples one thread merges at a time."""
_U32 = np.uint32


@inline
def _take(a: int, a_ids: int, i: int, b: int, b_ids: int, j: int, out: int, out_ids: int, at: int, like: Any) -> int:
    """Copy the smaller tuple. Returns 1 if it came from b. Uses masks, since a branch would often be mispredicted."""
    x, y = load_as(a, i, like), load_as(b, j, like)
    x_id, y_id = load_as(a_ids, i, _U32(0)), load_as(b_ids, j, _U32(0))
    from_b = int(y < x)
    mask = np.uint64(-from_b)
    store_as(out, at, type(like)(x ^ ((x ^ y) & mask)))
    store_as(out_ids, at, _U32(x_id ^ ((x_id ^ y_id) & mask)))
    return from_b


class _Args(KernelArgs):
    """The arguments of the merger: runs `a` and `b`, and the result."""

    A = auto()
    A_IDS = auto()
    B = auto()
    B_IDS = auto()
    OUT = auto()
    OUT_IDS = auto()
    INDEX = auto()
    A_SIZE = auto()
    B_SIZE = auto()
    STEP = auto()


@inline
def _merge(given: int, part: int, parts: int, like: Any) -> None:
    """Merge one slice of the result, in two interleaved halves."""
    a, a_ids, a_n = load(given, _Args.A), load(given, _Args.A_IDS), load(given, _Args.A_SIZE)
    b, b_ids, b_n = load(given, _Args.B), load(given, _Args.B_IDS), load(given, _Args.B_SIZE)
    out, out_ids = load(given, _Args.OUT), load(given, _Args.OUT_IDS)
    index, step = load(given, _Args.INDEX), load(given, _Args.STEP)
    total = a_n + b_n
    start, stop = total * part // parts, total * (part + 1) // parts
    k, end = start, (start + stop) >> 1
    m = end
    i, j = split_merge(a, a_n, b, b_n, k, like), split_merge(a, a_n, b, b_n, m, like)
    while True:
        # The number of steps until either half may reach the end of a run.
        steps = min(end - k, stop - m, a_n - i, b_n - (k - i), a_n - j, b_n - (m - j))
        if steps <= 0:
            break
        for _ in range(steps):
            i += 1 - _take(a, a_ids, i, b, b_ids, k - i, out, out_ids, k, like)
            j += 1 - _take(a, a_ids, j, b, b_ids, m - j, out, out_ids, m, like)
            k += 1
            m += 1
    _merge_rest(a, a_ids, a_n, b, b_ids, b_n, i, k, end, out, out_ids, like)
    _merge_rest(a, a_ids, a_n, b, b_ids, b_n, j, m, stop, out, out_ids, like)
    for sample in range((start + step - 1) // step, (stop + step - 1) // step):
        store_as(index, sample, load_as(out, sample * step, like))


@inline
def _merge_rest(
    a: int,
    a_ids: int,
    a_n: int,
    b: int,
    b_ids: int,
    b_n: int,
    i: int,
    k: int,
    end: int,
    out: int,
    out_ids: int,
    like: Any,
) -> None:
    """Merge the rest of a half while both runs last, then copy."""
    while k < end:
        if i >= a_n:
            store_as(out, k, load_as(b, k - i, like))
            store_as(out_ids, k, load_as(b_ids, k - i, _U32(0)))
        elif k - i >= b_n:
            store_as(out, k, load_as(a, i, like))
            store_as(out_ids, k, load_as(a_ids, i, _U32(0)))
            i += 1
        else:
            i += 1 - _take(a, a_ids, i, b, b_ids, k - i, out, out_ids, k, like)
        k += 1


@share
def _merge_32(given: int, part: int, parts: int) -> None:
    _merge(given, part, parts, np.uint32(0))


@share
def _merge_64(given: int, part: int, parts: int) -> None:
    _merge(given, part, parts, np.uint64(0))


def bisort_merger(arrays: Sequence[Array], scalars: Sequence[int], team: Team) -> int:
    """Merge, or copy if one run is empty."""
    return begin(arrays, scalars, team)()


def begin(arrays: Sequence[Array], scalars: Sequence[int], team: Team) -> Callable[[], int]:
    """Start the merge on the team's helper threads. Call the returned function to finish it."""
    a, a_ids, b, b_ids, out, out_ids, index = arrays
    a_n, b_n, step = scalars
    if a_n == 0 or b_n == 0:
        words, ids, n = (b, b_ids, b_n) if a_n == 0 else (a, a_ids, a_n)
        out[:n], out_ids[:n], index[: -(-n // step)] = words[:n], ids[:n], words[:n:step]
        return lambda: n
    merge = _merge_64 if out.dtype == np.uint64 else _merge_32
    given = _Args.pack(
        A=a,
        A_IDS=a_ids,
        B=b,
        B_IDS=b_ids,
        OUT=out,
        OUT_IDS=out_ids,
        INDEX=index,
        A_SIZE=a_n,
        B_SIZE=b_n,
        STEP=step,
    )
    if a_n + b_n <= MAX_ALONE:
        team.run(merge, given, 1)
        return lambda: a_n + b_n
    finish = team.post(merge, given, -(-(a_n + b_n) // SLICE), arrays)

    def finished() -> int:
        finish()
        return a_n + b_n

    return finished
