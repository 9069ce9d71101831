"""Kernels that build a block: merges of sorted runs, ranks, permutations, the search trees and the table of counts.

All work is cut in *tasks*: rows of a table of arguments, of at most about `SLICE` tuples each, so that threads can
share a merge, and a push can do a small part of it. Tasks of one phase are independent of each other. The paper sorts
by scanning the leaves of a B+-tree (section 3.3) and computes the permutation from that (Algorithm 2); here sorted
runs are merged, which is linear as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import auto
from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.join.spo.block import Block
from millrace.host.join.spo.block_search import CHUNK, BlockArgs
from millrace.host.kernels.merging import split_merge
from millrace.host.runtime.intrinsics import WIDE_LANES, fill_bytes, load, load_as, size_of, store_as
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.kernel_args import KernelArgs

SLICE = 1 << 13
"""About how many tuples one task handles."""
_MERGE, _RANK, _TREE, _GATHER, _TABLE = range(5)
_U16 = np.uint16
_LEVELS = 4
_WIDTH = 12
"""The words of a row of the table of tasks."""


class Task(KernelArgs):
    """A row of the table of tasks. Each kind of task uses some of the words."""

    KIND = auto()
    WIDE = auto()
    A = auto()
    A_IDS = auto()
    A_SIZE = auto()
    B = auto()
    B_IDS = auto()
    B_SIZE = auto()
    OUT = auto()
    OUT_IDS = auto()
    START = auto()
    STOP = auto()


@inline
def _merge(task: int, like: Any) -> None:
    """Merge tuples `START` to `STOP` of the result of two sorted runs; of equal words, those of run a come first."""
    a, a_ids, a_n = load(task, Task.A), load(task, Task.A_IDS), load(task, Task.A_SIZE)
    b, b_ids, b_n = load(task, Task.B), load(task, Task.B_IDS), load(task, Task.B_SIZE)
    out, out_ids = load(task, Task.OUT), load(task, Task.OUT_IDS)
    at, stop = load(task, Task.START), load(task, Task.STOP)
    i = split_merge(a, a_n, b, b_n, at, like)
    j = at - i
    while at < stop:
        steps = min(stop - at, a_n - i, b_n - j)
        for _ in range(steps):
            x, y = load_as(a, i, like), load_as(b, j, like)
            x_id, y_id = load_as(a_ids, i, _U16(0)), load_as(b_ids, j, _U16(0))
            from_b = int(y < x)
            # A mask, since a branch would often be mispredicted.
            mask = np.uint64(-from_b)
            store_as(out, at, type(like)(x ^ ((x ^ y) & mask)))
            store_as(out_ids, at, _U16(x_id ^ ((x_id ^ y_id) & mask)))
            i += 1 - from_b
            j += from_b
            at += 1
        if i == a_n:
            i, a, a_ids, a_n = j, b, b_ids, b_n
            j = b_n
        if j == b_n:
            for k in range(stop - at):
                store_as(out, at + k, load_as(a, i + k, like))
                store_as(out_ids, at + k, load_as(a_ids, i + k, _U16(0)))
            at = stop


@inline
def _tree(task: int, like: Any) -> None:
    """Pad the sorted words at A, and write the search tree behind them: every 16th word of the level below."""
    words, count, size = load(task, Task.A), load(task, Task.A_SIZE), size_of(like)
    for level in range(_LEVELS):
        padded = (count + WIDE_LANES - 1) // WIDE_LANES * WIDE_LANES
        fill_bytes(words + size * count, size * (padded - count))
        if level < _LEVELS - 1:
            above, count = words + size * padded, padded // WIDE_LANES
            for i in range(count):
                store_as(above, i, load_as(words, WIDE_LANES * i, like))
            words = above


@inline
def _rank(task: int) -> None:
    """Write the rank of each tuple of a slice, in order of position."""
    ids, out = load(task, Task.A_IDS), load(task, Task.OUT) - 2 * load(task, Task.A_SIZE)
    for i in range(load(task, Task.START), load(task, Task.STOP)):
        store_as(out, int(load_as(ids, i, _U16(0))), _U16(i))


@inline
def _gather(task: int) -> None:
    """Write the other key's ranks of a slice, in order of this key."""
    ids, ranks = load(task, Task.A_IDS), load(task, Task.A) - 2 * load(task, Task.A_SIZE)
    out = load(task, Task.OUT)
    for i in range(load(task, Task.START), load(task, Task.STOP)):
        store_as(out, i, load_as(ranks, int(load_as(ids, i, _U16(0))), _U16(0)))


@inline
def _table(task: int) -> None:
    """Write the table of counts, a row for every 256 B ranks, from the A ranks in order of B."""
    ranks, count = load(task, Task.A), load(task, Task.A_SIZE)
    table, stride = load(task, Task.OUT), load(task, Task.B_SIZE)
    for i in range(stride):
        store_as(table, i, _U16(0))
    for start in range(0, count, CHUNK):
        before, row = table, table + 2 * stride
        for i in range(stride):
            store_as(row, i, _U16(0))
        for i in range(start, min(start + CHUNK, count)):
            chunk = (int(load_as(ranks, i, _U16(0))) >> 8) + 1
            store_as(row, chunk, _U16(load_as(row, chunk, _U16(0)) + 1))
        total = 0
        for i in range(stride):
            total += load_as(row, i, _U16(0))
            store_as(row, i, _U16(total + load_as(before, i, _U16(0))))
        table = row


@share
def run_tasks(given: int, part: int, parts: int) -> None:
    """Run one task."""
    task = given + 8 * _WIDTH * part
    kind, wide = load(task, Task.KIND), load(task, Task.WIDE)
    if kind == _MERGE:
        if wide:
            _merge(task, np.uint64(0))
        else:
            _merge(task, np.uint32(0))
    elif kind == _TREE:
        if wide:
            _tree(task, np.uint64(0))
        else:
            _tree(task, np.uint32(0))
    elif kind == _RANK:
        _rank(task)
    elif kind == _GATHER:
        _gather(task)
    else:
        _table(task)


def slices(count: int) -> list[tuple[int, int]]:
    """Cut `count` tuples in slices of about equal size."""
    parts = max(1, round(count / SLICE))
    return [(count * part // parts, count * (part + 1) // parts) for part in range(parts)]


def merge_tasks(older: Sequence[int], newer: Sequence[int], out: int, out_ids: int, wide: bool) -> list[Array]:
    """The tasks that merge two runs, each given as addresses of words and ids, and size."""
    return [
        Task.pack(
            KIND=_MERGE,
            WIDE=wide,
            A=older[0],
            A_IDS=older[1],
            A_SIZE=older[2],
            B=newer[0],
            B_IDS=newer[1],
            B_SIZE=newer[2],
            OUT=out,
            OUT_IDS=out_ids,
            START=start,
            STOP=stop,
        )
        for start, stop in slices(older[2] + newer[2])
    ]


def rank_tasks(block: Block) -> list[Array]:
    """The first phase after sorting: ranks by position, and the search trees."""
    given = block.given
    tasks = []
    for key, ids, out in ((0, BlockArgs.IDS_A, BlockArgs.A_AT), (1, BlockArgs.IDS_B, BlockArgs.B_AT)):
        words = int(given[BlockArgs.WORDS_A + key])
        wide = block.words[key].itemsize == 8
        tasks.append(Task.partly(KIND=_TREE, WIDE=wide, A=words, A_SIZE=block.size, STOP=block.size // WIDE_LANES))
        tasks += [
            Task.partly(
                KIND=_RANK,
                A_IDS=int(given[ids]),
                A_SIZE=block.first - block.cell,
                OUT=int(given[out]),
                START=start,
                STOP=stop,
            )
            for start, stop in slices(block.size)
        ]
    return tasks


def gather_tasks(block: Block) -> list[Array]:
    """The second phase: the permutations."""
    given = block.given
    a = (BlockArgs.IDS_A, BlockArgs.B_AT, BlockArgs.B_IN_A)
    b = (BlockArgs.IDS_B, BlockArgs.A_AT, BlockArgs.A_IN_B)
    return [
        Task.partly(
            KIND=_GATHER,
            A_IDS=int(given[ids]),
            A=int(given[ranks]),
            A_SIZE=block.first - block.cell,
            OUT=int(given[out]),
            START=start,
            STOP=stop,
        )
        for ids, ranks, out in (a, b)
        for start, stop in slices(block.size)
    ]


def table_tasks(block: Block) -> list[Array]:
    """The third phase: the table of counts."""
    given = block.given
    return [
        Task.partly(
            KIND=_TABLE,
            A=int(given[BlockArgs.A_IN_B]),
            A_SIZE=block.size,
            OUT=int(given[BlockArgs.TABLE]),
            B_SIZE=int(given[BlockArgs.STRIDE]),
            STOP=block.size,
        )
    ]


def task_table(tasks: Sequence[Array]) -> Array:
    """The argument of `run_tasks`, one part per task."""
    return np.concatenate(tasks)
