"""SIMD code for squared distances: from a point to the points of a block, and to the boxes of a node.

Differences are squared and added dimension by dimension, each step rounded, never fused: LLVM fuses only what is marked
so. The result is the same on every processor. Rounding is monotonic, so the distance to a box, computed in the same
order, never exceeds the distance to a point in it. Empty lanes hold NaN, which no comparison accepts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types

from millrace.host.device.units import BOX_FANOUT, POINT_BLOCK
from millrace.host.runtime.intrinsics import _broadcast, _element, _flags, codegen, define
from millrace.host.runtime.jit import inline

BLOCK = POINT_BLOCK
"""Points of a block."""
FANOUT = BOX_FANOUT
"""Children of a node."""
MIN_DIMENSIONS, MAX_DIMENSIONS = 2, 8
_LANES = 8
_DOUBLE, _WORD = ir.DoubleType(), ir.IntType(64)
_VECTOR = ir.VectorType(_DOUBLE, _LANES)
_ZERO = ir.Constant(_VECTOR, [0.0] * _LANES)


def _line(b: Any, where: Any, at: Any) -> Any:
    """Load a vector of doubles from element `at` on."""
    start = b.bitcast(_element(b, where, at, _DOUBLE), _VECTOR.as_pointer())
    return b.load(start, align=8)


def _value(b: Any, where: Any, at: Any) -> Any:
    """Load a double and broadcast it."""
    return _broadcast(b, b.load(_element(b, where, at, _DOUBLE)), _VECTOR)


def _sum_of_squares(b: Any, dims: Any, lines: int, gap: Callable[[Any, int], Any]) -> list[Any]:
    """Add the squares of `gap(dimension, line)` over all dimensions, in order; two of them are always there."""
    pairs = [(gap(_WORD(0), i), gap(_WORD(1), i)) for i in range(lines)]
    sums = [b.fadd(b.fmul(one, one), b.fmul(two, two)) for one, two in pairs]
    kept = [codegen.alloca_once(b, _VECTOR) for _ in range(lines)]
    for total, slot in zip(sums, kept, strict=True):
        b.store(total, slot)
    with codegen.for_range(b, dims, start=_WORD(2), intp=_WORD) as loop:
        for i, slot in enumerate(kept):
            one = gap(loop.index, i)
            b.store(b.fadd(b.load(slot), b.fmul(one, one)), slot)
    return [b.load(slot) for slot in kept]


def _store_and_compare(b: Any, sums: list[Any], out: Any, bound: Any) -> Any:
    """Store the sums; return a bit mask of those that are at most `bound`."""
    bounds, found = _broadcast(b, bound, _VECTOR), _WORD(0)
    for i, total in enumerate(sums):
        start = b.bitcast(_element(b, out, _WORD(_LANES * i), _DOUBLE), _VECTOR.as_pointer())
        b.store(total, start, align=8)
        found = b.or_(found, b.shl(_flags(b, b.fcmp_ordered("<=", total, bounds)), _WORD(_LANES * i)))
    return found


def _points(b: Any, block: Any, query: Any, dims: Any, bound: Any, out: Any, lanes: int) -> Any:
    def gap(dimension: Any, line: int) -> Any:
        at = b.add(b.mul(dimension, _WORD(lanes)), _WORD(_LANES * line))
        return b.fsub(_line(b, block, at), _value(b, query, dimension))

    return _store_and_compare(b, _sum_of_squares(b, dims, lanes // _LANES, gap), out, bound)


def _nearest(b: Any, node: Any, query: Any, dims: Any, bound: Any, allowed: Any, out: Any) -> Any:
    def gap(dimension: Any, line: int) -> Any:
        low = b.add(b.mul(dimension, _WORD(2 * FANOUT)), _WORD(_LANES * line))
        here = _value(b, query, dimension)
        below = b.fsub(_line(b, node, low), here)
        above = b.fsub(here, _line(b, node, b.add(low, _WORD(FANOUT))))
        larger = b.select(b.fcmp_ordered(">", below, above), below, above)
        return b.select(b.fcmp_ordered("<", larger, _ZERO), _ZERO, larger)

    sums = _sum_of_squares(b, dims, FANOUT // _LANES, gap)
    found = b.and_(_store_and_compare(b, sums, out, bound), allowed)
    last = b.and_(found, b.sub(found, _WORD(1)))  # without its lowest bit
    entry, done = b.block, b.append_basic_block("nearest_found")
    several = b.append_basic_block("several_boxes")
    single = b.cttz(b.or_(found, _WORD(1 << FANOUT)), ir.IntType(1)(1))
    b.cbranch(b.icmp_unsigned("!=", last, _WORD(0)), several, done)
    b.position_at_end(several)
    nearest = _lane_of_least(b, sums, found)
    b.branch(done)
    b.position_at_end(done)
    child = b.phi(_WORD)
    child.add_incoming(single, entry)
    child.add_incoming(nearest, several)
    return b.or_(found, b.shl(child, _WORD(FANOUT)))


def _lane_of_least(b: Any, sums: list[Any], wanted: Any) -> Any:
    """Return the first lane among those wanted that has the least value."""
    bits = ir.VectorType(ir.IntType(1), _LANES)
    far = ir.Constant(_VECTOR, [math.inf] * _LANES)
    least = far
    for i, total in enumerate(sums):
        some = b.bitcast(b.trunc(b.lshr(wanted, _WORD(_LANES * i)), ir.IntType(_LANES)), bits)
        one = b.select(some, total, far)
        least = b.select(b.fcmp_ordered("<", one, least), one, least)
    for distance in (4, 2, 1):
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), _LANES), [(i + distance) % _LANES for i in range(_LANES)])
        turned = b.shuffle_vector(least, least, lanes)
        least = b.select(b.fcmp_ordered("<", turned, least), turned, least)
    same = _WORD(0)
    for i, total in enumerate(sums):
        same = b.or_(same, b.shl(_flags(b, b.fcmp_ordered("==", total, least)), _WORD(_LANES * i)))
    return b.cttz(b.or_(b.and_(same, wanted), _WORD(1 << FANOUT)), ir.IntType(1)(1))


def _column(b: Any, first: Any, stride: Any, query: Any, dims: Any, bound: Any, out: Any) -> Any:
    def gap(dimension: Any, line: int) -> Any:
        at = b.add(b.mul(dimension, stride), _WORD(_LANES * line))
        return b.fsub(_line(b, first, at), _value(b, query, dimension))

    return _store_and_compare(b, _sum_of_squares(b, dims, 1, gap), out, bound)


_W, _D = types.int64, types.float64
block_squares: Callable[[int, int, int, float, int], int] = define(
    lambda b, block, query, dims, bound, out: _points(b, block, query, dims, bound, out, BLOCK), _W, _W, _W, _W, _D, _W
)
"""Store the squared distances of `BLOCK` points at `out`; return a mask of those that are at most `bound`.

`block_squares(block, query, dims, bound, out)`; a block has `BLOCK` doubles for each dimension.
"""
nearest_box: Callable[[int, int, int, float, int, int], int] = define(_nearest, _W, _W, _W, _W, _D, _W, _W)
"""The same for the boxes of a node among those in the mask `allowed`; the nearest one is in the bits from `FANOUT` on.

`nearest_box(node, query, dims, bound, allowed, out)`; a node has `FANOUT` lower and upper ends for each dimension.
"""
column_squares: Callable[[int, int, int, int, float, int], int] = define(_column, _W, _W, _W, _W, _W, _D, _W)
"""The same for 8 points in columns: `column_squares(first, stride, query, dims, bound, out)`."""
LINE_POINTS = _LANES
"""Points that `column_squares` reads."""


FACTS = 5
"""Lines of a node behind its boxes: least and largest position, least tie key, least and largest group."""


@inline
def node_words(dims: int) -> int:
    """Return the 64-bit words of a node."""
    return (2 * dims + FACTS) * FANOUT
