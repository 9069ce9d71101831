"""The arguments of the search kernels, what they know of a query, and which points a query may find."""

from __future__ import annotations

from enum import auto

from millrace.host.knn.lanes import FANOUT
from millrace.host.runtime.intrinsics import load, lowest_bit
from millrace.host.runtime.jit import inline
from millrace.host.runtime.kernel_args import KernelArgs

MAX_LEVELS = 8
"""Levels of a run: 16^8 blocks are more than memory holds."""
NO_POSITION = -1
"""The position of no point."""


class SearchArgs(KernelArgs):
    """The arguments of `search`."""

    COUNT = auto()  # queries
    ORDER = auto()  # their numbers in the order of the curve
    DIMS = auto()
    STRIDE = auto()  # words between the columns of the queries
    QUERIES = auto()  # the first column
    BEGIN = auto()  # the visible interval of each query, or 0: all positions
    END = auto()
    OWN = auto()  # the position that is no neighbour of a query, or 0
    GROUPS = auto()  # the group of each query, or 0
    K = auto()
    LIMIT = auto()  # the largest squared distance, as bits
    LIMITS = auto()  # that of each query, or 0
    SCRATCH = auto()  # per part: the best candidates
    OUT_COUNTS = auto()
    OUT_SQUARES = auto()
    OUT_POSITIONS = auto()
    TAIL_FIRST = auto()  # the points in columns: their first position, number, and the words between columns
    TAIL_COUNT = auto()
    TAIL_STRIDE = auto()
    TAIL_COLUMNS = auto()
    TAIL_POSITIONS = auto()
    TAIL_TIES = auto()  # the same address as TAIL_POSITIONS if points have no tie keys
    TAIL_GROUPS = auto()
    RUNS = auto()
    RUN = auto()  # then per run: the words of `RunArgs`


class RunArgs(KernelArgs):
    """The words of a run."""

    CHECKED = auto()  # whether each candidate's position, group and identity must be checked
    LEVELS = auto()
    BLOCKS = auto()
    POSITIONS = auto()
    TIES = auto()
    GROUPS = auto()
    LEVEL = auto()  # the lowest level; the others follow


RUN_WORDS = int(RunArgs.LEVEL) + MAX_LEVELS


class QueryState(KernelArgs):
    """What is known of a query, in scratch memory of the kernel."""

    NUMBER = auto()
    BEGIN = auto()
    END = auto()
    OWN = auto()
    GROUP = auto()
    GROUPED = auto()
    LIMIT = auto()  # the largest squared distance of a neighbour, as bits
    POINT = auto()  # the coordinates follow


_COORDINATES = 8
QUERY_WORDS = int(QueryState.POINT) + _COORDINATES


@inline
def candidates(query: int, mask: int, positions: int, groups: int) -> int:
    """Return the lanes of a mask whose points the query may find."""
    begin, end, own = load(query, QueryState.BEGIN), load(query, QueryState.END), load(query, QueryState.OWN)
    grouped, group = (load(query, QueryState.GROUPED) != 0) & (groups != 0), load(query, QueryState.GROUP)
    found, left = 0, mask
    while left != 0:
        lane = lowest_bit(left)
        left &= left - 1
        position = load(positions, lane)
        keep = (position >= begin) & (position < end) & (position != own)
        if grouped:
            keep &= load(groups, lane) == group
        found |= (1 if keep else 0) << lane
    return found


@inline
def visible_children(query: int, facts: int, mask: int) -> int:
    """Return the children of a mask in which the query may find a point."""
    begin, end = load(query, QueryState.BEGIN), load(query, QueryState.END)
    grouped, group = load(query, QueryState.GROUPED) != 0, load(query, QueryState.GROUP)
    found, left = 0, mask
    while left != 0:
        child = lowest_bit(left)
        left &= left - 1
        visible = (load(facts, child) < end) & (load(facts, FANOUT + child) >= begin)
        same = (load(facts, 3 * FANOUT + child) <= group) & (load(facts, 4 * FANOUT + child) >= group)
        found |= (1 if visible & (same | (not grouped)) else 0) << child
    return found
