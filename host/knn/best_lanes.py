"""Keeps the nearest candidates of a query sorted in SIMD registers, by squared distance alone.

Lists have 8, 16, 32 or 64 entries, keys and values apart; empty entries hold NaN. A candidate is compared with all
entries at once; those behind it move by one lane. There is no branch but the loop over candidates. Equal squared
distances are not put in order here: `insert_candidates` returns whether two entries are equal, and the caller searches
again with exact ties (`best.py`). A list is longer than k, so a tie of the last neighbour with the next one is seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from llvmlite import ir
from numba.core import types

from millrace.host.knn.lanes import LINE_POINTS
from millrace.host.runtime.intrinsics import _broadcast, _element, _flags, codegen, define
from millrace.host.runtime.jit import inline

MAX_LANES = 64
"""Entries of the longest list."""
_INT, _WORD, _DOUBLE = ir.IntType(32), ir.IntType(64), ir.DoubleType()
_KEYS, _VALUES = ir.VectorType(_DOUBLE, LINE_POINTS), ir.VectorType(_WORD, LINE_POINTS)
_NOTHING_BEFORE = ir.Constant(_KEYS, [-math.inf] * LINE_POINTS)
_EMPTY = ir.Constant(_KEYS, [math.nan] * LINE_POINTS)
_NO_VALUE = ir.Constant(_VALUES, [0] * LINE_POINTS)
_ONE_LATER = ir.Constant(ir.VectorType(_INT, LINE_POINTS), list(range(LINE_POINTS - 1, 2 * LINE_POINTS - 1)))


def _list(b: Any, where: Any, kind: Any, lines: int) -> list[Any]:
    """Return the pointers to the lines of a list."""
    starts = (_element(b, where, _WORD(LINE_POINTS * i), kind.element) for i in range(lines))
    return [b.bitcast(start, kind.as_pointer()) for start in starts]


def _insert(b: Any, mask: Any, squares: Any, ids: Any, best: Any, values: Any, lines: int) -> Any:
    slots = [*_list(b, best, _KEYS, lines), *_list(b, values, _VALUES, lines)]
    before = [b.load(slot, align=8) for slot in slots]
    entry, loop, done = b.block, b.append_basic_block("insert"), b.append_basic_block("inserted")
    b.cbranch(b.icmp_unsigned("!=", mask, _WORD(0)), loop, done)

    b.position_at_end(loop)
    left, held = b.phi(_WORD), [b.phi(one.type) for one in before]
    lane = b.cttz(left, ir.IntType(1)(1))
    key = _broadcast(b, b.load(_element(b, squares, lane, _DOUBLE)), _KEYS)
    value = _broadcast(b, b.load(_element(b, ids, lane, _WORD)), _VALUES)
    after = _with_candidate(b, held, key, value, lines)
    still = b.and_(left, b.sub(left, _WORD(1)))
    b.cbranch(b.icmp_unsigned("!=", still, _WORD(0)), loop, done)
    for phi, first, later in ((left, mask, still), *zip(held, before, after, strict=True)):
        phi.add_incoming(first, entry)
        phi.add_incoming(later, loop)

    b.position_at_end(done)
    ends = [b.phi(one.type) for one in before]
    for end, first, later in zip(ends, before, after, strict=True):
        end.add_incoming(first, entry)
        end.add_incoming(later, loop)
    for end, slot in zip(ends, slots, strict=True):
        b.store(end, slot, align=8)
    equal = _WORD(0)
    for i, key in enumerate(ends[:lines]):
        equal = b.or_(equal, _flags(b, b.fcmp_ordered("==", key, _one_later(b, ends, i, _NOTHING_BEFORE))))
    return equal


def _one_later(b: Any, lists: list[Any], i: int, first: Any) -> Any:
    """Return line i of a list whose entries are moved by one lane."""
    return b.shuffle_vector(lists[i - 1] if i else first, lists[i], _ONE_LATER)


def _with_candidate(b: Any, held: list[Any], key: Any, value: Any, lines: int) -> list[Any]:
    """Return the lists with a candidate at its position; NaN is behind every key."""
    keys, values = held[:lines], held[lines:]
    new_keys, new_values = [], []
    for i in range(lines):
        before, value_before = _one_later(b, keys, i, _NOTHING_BEFORE), _one_later(b, values, i, _NO_VALUE)
        behind = b.fcmp_unordered(">", keys[i], key)
        moved = b.fcmp_unordered(">", before, key)
        new_keys.append(b.select(behind, b.select(moved, before, key), keys[i]))
        new_values.append(b.select(behind, b.select(moved, value_before, value), values[i]))
    return [*new_keys, *new_values]


def _insert_into(lines: int) -> Callable[[int, int, int, int, int], int]:
    word = types.int64
    made: Callable[[int, int, int, int, int], int] = define(
        partial(_insert, lines=lines), word, word, word, word, word, word
    )
    return made


def _copy(b: Any, source: Any, to: Any, count: Any) -> None:
    wanted = b.icmp_signed("<", ir.Constant(_VALUES, list(range(LINE_POINTS))), _broadcast(b, count, _VALUES))
    kind = ir.FunctionType(ir.VoidType(), [_VALUES, _VALUES.as_pointer(), _INT, wanted.type])
    store_some = codegen.get_or_insert_function(b.module, kind, "llvm.masked.store.v8i64.p0v8i64")
    values = b.load(_list(b, source, _VALUES, 1)[0], align=8)
    b.call(store_some, [values, _list(b, to, _VALUES, 1)[0], _INT(8), wanted])


_clear_line: Callable[[int], None] = define(
    lambda b, to: b.store(_EMPTY, _list(b, to, _KEYS, 1)[0], align=8), types.void, types.int64
)
_copy_line: Callable[[int, int, int], None] = define(_copy, types.void, types.int64, types.int64, types.int64)
_insert_8, _insert_16, _insert_32, _insert_64 = (_insert_into(lines) for lines in (1, 2, 4, 8))


@inline
def insert_candidates(mask: int, squares: int, ids: int, best: int, k: int) -> int:
    """Insert the candidates in `mask`, with their squares and ids at these addresses; return 0 if no two are equal."""
    values = best + 8 * MAX_LANES
    if k < 8:
        return _insert_8(mask, squares, ids, best, values)
    if k < 16:
        return _insert_16(mask, squares, ids, best, values)
    if k < 32:
        return _insert_32(mask, squares, ids, best, values)
    return _insert_64(mask, squares, ids, best, values)


@inline
def clear_best(best: int, k: int) -> None:
    """Empty the lists. Stored as lines: a line that is loaded after stores of single words would wait for them."""
    for i in range(0, 8 if k < 8 else 16 if k < 16 else 32 if k < 32 else MAX_LANES, LINE_POINTS):
        _clear_line(best + 8 * i)


@inline
def copy_best(source: int, to: int, count: int) -> None:
    """Copy words, a line at a time; nothing behind them is written."""
    for i in range(0, count, LINE_POINTS):
        _copy_line(source + 8 * i, to + 8 * i, count - i)
