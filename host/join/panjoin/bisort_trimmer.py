"""The `bisort_trimmer` unit on the CPU: a run without its expired tuples, in the same order.

Buffers: words and ids of the run, words and ids of the result (as long as the run). Scalars: length of the run, the
first id that is kept. The unit reports the rows that are left. PanJoin filters the matches in the oldest subwindow
(III-G1). If only counts are wanted, one pass over that subwindow saves checking every match.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import auto
from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.runtime.intrinsics import load, load_as, store_as
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.team import Team

SLICE = 1 << 15
"""About how many tuples one thread processes at a time."""
_U32 = np.uint32


class _Args(KernelArgs):
    """The arguments of the trimmer."""

    WORDS = auto()
    IDS = auto()
    OUT = auto()
    OUT_IDS = auto()
    N = auto()
    OLDEST = auto()
    FIRSTS = auto()  # where the result of each slice begins


@share
def _count(given: int, part: int, parts: int) -> None:
    """Count the tuples of each slice that are left."""
    ids, n, oldest = load(given, _Args.IDS), load(given, _Args.N), _U32(load(given, _Args.OLDEST))
    total = 0
    for i in range(n * part // parts, n * (part + 1) // parts):
        total += load_as(ids, i, _U32(0)) >= oldest
    store_as(load(given, _Args.FIRSTS), part + 1, total)


@inline
def _copy(given: int, part: int, parts: int, like: Any) -> None:
    words, ids = load(given, _Args.WORDS), load(given, _Args.IDS)
    out, out_ids = load(given, _Args.OUT), load(given, _Args.OUT_IDS)
    n, oldest, firsts = load(given, _Args.N), _U32(load(given, _Args.OLDEST)), load(given, _Args.FIRSTS)
    at, end = load(firsts, part), load(firsts, part + 1)
    i = n * part // parts
    while at < end:
        # Written unconditionally; the next kept tuple overwrites it if it is not kept.
        store_as(out, at, load_as(words, i, like))
        store_as(out_ids, at, load_as(ids, i, _U32(0)))
        at += load_as(ids, i, _U32(0)) >= oldest
        i += 1


@share
def _copy_32(given: int, part: int, parts: int) -> None:
    _copy(given, part, parts, np.uint32(0))


@share
def _copy_64(given: int, part: int, parts: int) -> None:
    _copy(given, part, parts, np.uint64(0))


def bisort_trimmer(arrays: Sequence[Array], scalars: Sequence[int], team: Team) -> int:
    """Copy the tuples that are left. Returns their number."""
    words, ids, out, out_ids = arrays
    n, oldest = scalars
    parts = max(-(-n // SLICE), 1)
    firsts = np.zeros(parts + 1, np.int64)
    given = _Args.pack(WORDS=words, IDS=ids, OUT=out, OUT_IDS=out_ids, N=n, OLDEST=oldest, FIRSTS=firsts)
    team.run(_count, given, parts)
    np.cumsum(firsts, out=firsts)
    team.run(_copy_64 if words.dtype == np.uint64 else _copy_32, given, parts)
    return int(firsts[-1])
