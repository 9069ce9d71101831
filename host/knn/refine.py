"""Computes the exact distances of points that a device has selected, and keeps the k nearest of each query.

A query's best candidates (`best.py`) are kept from run to run. The squared distance of the last one bounds the next
selection, and says whether a selection was long enough (`device_run.py`); otherwise the query is marked, and the host
searches for it. Distances are those of `lanes.py`, bit for bit: differences are squared and added dimension by
dimension, never fused.
"""

from __future__ import annotations

import math
from enum import auto

import numpy as np

from millrace.host.base.errors import DeviceFault
from millrace.host.base.types import Array, Longs, Mask
from millrace.host.knn.best import LISTS, offer, sort_best, worst_at
from millrace.host.knn.device_run import MARGIN, NO_POINT, DeviceRun, Selection
from millrace.host.knn.index import Neighbours
from millrace.host.knn.lanes import BLOCK
from millrace.host.runtime.allocator import allocate, free
from millrace.host.runtime.intrinsics import load, load_as, load_id, store, store_as
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.team import Team

_QUERIES_PER_PART = 256
_U32, _F32 = np.uint32, np.float32


class _Args(KernelArgs):
    """The arguments of `_refine`."""

    COUNT = auto()  # queries
    STRIDE = auto()  # words between their columns
    QUERIES = auto()
    DIMS = auto()
    K = auto()
    BEST = auto()
    COUNTS = auto()
    LIMITS = auto()  # squared distance of the k-th candidate, or the largest that is allowed
    MARKS = auto()  # not 0: the host searches for the query
    MARK = auto()  # of a query whose selection was too short
    SLOTS = auto()
    SQUARES = auto()
    SPREAD = auto()
    WANT = auto()
    SCALE = auto()  # as bits
    POINTS = auto()  # of the run
    BLOCKS = auto()
    POSITIONS = auto()
    TIES = auto()
    WRONG = auto()  # set if a slot is not one of the run


class _OutArgs(KernelArgs):
    """The arguments of `_write`."""

    COUNT = auto()
    K = auto()
    BEST = auto()
    COUNTS = auto()
    ORDER = auto()  # the number of each query in the output
    OWN = auto()  # the position that is no neighbour, or 0
    OUT_K = auto()
    OUT_COUNTS = auto()
    OUT_SQUARES = auto()
    OUT_POSITIONS = auto()


@inline
def _square(given: int, query: int, slot: int) -> float:
    """Return the squared distance of a point, by the contract."""
    dims, total = load(given, _Args.DIMS), 0.0
    block = load(given, _Args.BLOCKS) + 8 * (BLOCK * dims * (slot // BLOCK) + slot % BLOCK)
    for i in range(dims):
        here = load_as(load(given, _Args.QUERIES), load(given, _Args.STRIDE) * i + query, 0.0)
        gap = load_as(block, BLOCK * i, 0.0) - here
        total += gap * gap
    return total


@share
def _refine(given: int, part: int, parts: int) -> None:
    m, k, want = load(given, _Args.COUNT), load(given, _Args.K), load(given, _Args.WANT)
    slots, limits = load(given, _Args.SLOTS), load(given, _Args.LIMITS)
    scale = load_as(given, _Args.SCALE, 0.0)
    for query in range(m * part // parts, m * (part + 1) // parts):
        best, count = load(given, _Args.BEST) + 8 * LISTS * k * query, load(load(given, _Args.COUNTS), query)
        limit = load_as(limits, query, 0.0)
        for i in range(want):
            slot = int(load_as(slots, m * i + query, _U32(0)))
            if slot == NO_POINT:
                continue
            if slot >= load(given, _Args.POINTS):
                store(load(given, _Args.WRONG), 0, 1)
                continue
            square = _square(given, query, slot)
            if square <= limit:
                tie, position = load(load(given, _Args.TIES), slot), load(load(given, _Args.POSITIONS), slot)
                count = offer(best, k, count, k, square, tie, position)
        store(load(given, _Args.COUNTS), query, count)
        limit = load_as(best, worst_at(k), 0.0) if count == k else limit
        store_as(limits, query, limit)
        if int(load_as(slots, query, _U32(0))) != NO_POINT:  # as many as the device may select
            distance = math.sqrt(limit) * scale
            farthest = math.sqrt(float(load_as(load(given, _Args.SQUARES), query, _F32(0))))
            if not farthest > distance + MARGIN * (load_as(load(given, _Args.SPREAD), query, 0.0) + distance):
                store_as(load(given, _Args.MARKS), query, np.uint8(load(given, _Args.MARK)))


@share
def _write(given: int, part: int, parts: int) -> None:
    """Write the candidates in order, without a query's own position."""
    m, k, to = load(given, _OutArgs.COUNT), load(given, _OutArgs.K), load(given, _OutArgs.OUT_K)
    squares, positions = load(given, _OutArgs.OUT_SQUARES), load(given, _OutArgs.OUT_POSITIONS)
    for query in range(m * part // parts, m * (part + 1) // parts):
        best, count = load(given, _OutArgs.BEST) + 8 * LISTS * k * query, load(load(given, _OutArgs.COUNTS), query)
        sort_best(best, k, count, k)
        number, kept = load_id(load(given, _OutArgs.ORDER), query), 0
        own = load(load(given, _OutArgs.OWN), query) if load(given, _OutArgs.OWN) != 0 else -1
        for i in range(count):
            position = load(best, 2 * k + i)
            if kept < to and position != own:
                store(squares, to * number + kept, load(best, i))
                store(positions, to * number + kept, position)
                kept += 1
        store(load(given, _OutArgs.OUT_COUNTS), number, kept)


class BestCandidates:
    """The k nearest candidates of some queries, over the runs refined so far."""

    def __init__(self, columns: Array, k: int, limits: Array, team: Team) -> None:
        """No candidates yet; `columns` are the queries' points, `limits` bound squared distances and are changed."""
        self.columns, self._k, self._team = columns, k, team
        m = columns.shape[1]
        self._best = allocate(LISTS * k * m, np.int64)
        self._counts = np.zeros(m, np.int64)
        self.limits = limits
        self.marks = np.zeros(m, np.uint8)
        """Not 0: the host must search for the query."""

    def mark(self, queries: Mask, mark: int) -> None:
        """Mark queries that have no mark yet."""
        self.marks[queries & (self.marks == 0)] = mark

    def refine(self, held: DeviceRun, found: Selection, short: int) -> None:
        """Take what a device has selected in a run; `short` marks the queries whose selection was too short."""
        run, m = held.run, len(self._counts)
        wrong = np.zeros(1, np.int64)
        given = _Args.pack(
            COUNT=m,
            STRIDE=m,
            QUERIES=self.columns,
            DIMS=run.dims,
            K=self._k,
            BEST=self._best,
            COUNTS=self._counts,
            LIMITS=self.limits,
            MARKS=self.marks,
            MARK=short,
            SLOTS=found.slots,
            SQUARES=found.squares,
            SPREAD=found.spread,
            WANT=found.want,
            SCALE=int(np.float64(held.scale).view(np.int64)),
            POINTS=len(run),
            BLOCKS=run.coordinates,
            POSITIONS=run.positions,
            TIES=run.ties,
            WRONG=wrong,
        )
        self._team.run(_refine, given, max(m // _QUERIES_PER_PART, 1))
        if wrong[0]:
            raise DeviceFault(f"the device selected points beyond the {len(run)} that it was given")

    def write(self, order: Array, own: Longs | None, out: Neighbours) -> None:
        """Write the neighbours of all queries; `order`: the number of each query in the output."""
        given = _OutArgs.pack(
            COUNT=len(self._counts),
            K=self._k,
            BEST=self._best,
            COUNTS=self._counts,
            ORDER=order,
            OWN=0 if own is None else own,
            OUT_K=out.k,
            OUT_COUNTS=out.counts,
            OUT_SQUARES=out.squares,
            OUT_POSITIONS=out.positions,
        )
        self._team.run(_write, given, max(len(self._counts) // _QUERIES_PER_PART, 1))
        free(self._best)
