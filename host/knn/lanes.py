"""SIMD code for squared distances: from a point to the points of a block, and to the boxes of a node.

Differences are squared and added dimension by dimension, each step rounded, never fused: LLVM fuses only what is marked
so. The result is the same on every processor. Rounding is monotonic, so the distance to a box, computed in the same
order, never exceeds the distance to a point in it. Empty lanes hold NaN, which no comparison accepts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from llvmlite import ir

from millrace.host.device.units import BOX_FANOUT, POINT_BLOCK
from millrace.host.runtime.intrinsics import _broadcast, _element, _flags, binding, codegen, define
from millrace.host.runtime.jit import config, inline

BLOCK = POINT_BLOCK
"""Points of a block."""
FANOUT = BOX_FANOUT
"""Children of a node."""
MIN_DIMENSIONS, MAX_DIMENSIONS = 2, 8
_LANES = 8
_DOUBLE, _WORD = ir.DoubleType(), ir.IntType(64)
_VECTOR, _WORDS = ir.VectorType(_DOUBLE, _LANES), ir.VectorType(_WORD, _LANES)
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


def _compare(b: Any, sums: list[Any], bound: Any) -> Any:
    """Return a bit mask of the sums that are at most `bound`."""
    bounds, found = _broadcast(b, bound, _VECTOR), _WORD(0)
    for i, total in enumerate(sums):
        found = b.or_(found, b.shl(_flags(b, b.fcmp_ordered("<=", total, bounds)), _WORD(_LANES * i)))
    return found


def _store_and_compare(b: Any, sums: list[Any], out: Any, bound: Any) -> Any:
    """Store the sums; return a bit mask of those that are at most `bound`."""
    for i, total in enumerate(sums):
        start = b.bitcast(_element(b, out, _WORD(_LANES * i), _DOUBLE), _VECTOR.as_pointer())
        b.store(total, start, align=8)
    return _compare(b, sums, bound)


def _block_sums(b: Any, block: Any, query: Any, dims: Any) -> list[Any]:
    """Return the squared distances to the points of a block."""

    def gap(dimension: Any, line: int) -> Any:
        at = b.add(b.mul(dimension, _WORD(BLOCK)), _WORD(_LANES * line))
        return b.fsub(_line(b, block, at), _value(b, query, dimension))

    return _sum_of_squares(b, dims, BLOCK // _LANES, gap)


def _keep_block(b: Any, block: Any, query: Any, dims: Any, bound: Any, first: Any, found: Any, slots: Any) -> Any:
    bounds, steps = _broadcast(b, bound, _VECTOR), ir.Constant(_WORDS, [8 * i for i in range(_LANES)])
    count = _WORD(0)
    for i, total in enumerate(_block_sums(b, block, query, dims)):
        near = b.fcmp_ordered("<=", total, bounds)
        addresses = b.add(_broadcast(b, b.add(first, _WORD(64 * i)), _WORDS), steps)
        _store_chosen(b, b.bitcast(total, _WORDS), near, found, count)
        _store_chosen(b, addresses, near, slots, count)
        count = b.add(count, b.ctpop(_flags(b, near)))
    return count


def _store_chosen(b: Any, words: Any, chosen: Any, to: Any, at: Any) -> None:
    """Store some lanes one after the other; what follows them, up to a whole line, may be overwritten."""
    start = b.bitcast(_element(b, to, at, _WORD), _WORDS.as_pointer())
    if _has_compress():
        # The instruction on registers: the one that stores takes many times as long on some processors.
        kind = ir.FunctionType(_WORDS, [_WORDS, _WORDS, chosen.type])
        compress = codegen.get_or_insert_function(b.module, kind, "llvm.x86.avx512.mask.compress.v8i64")
        b.store(b.call(compress, [words, ir.Constant(_WORDS, None), chosen]), start, align=8)
    else:
        kind = ir.FunctionType(ir.VoidType(), [_WORDS, _WORD.as_pointer(), chosen.type])
        store = codegen.get_or_insert_function(b.module, kind, "llvm.masked.compressstore.v8i64")
        b.call(store, [words, _element(b, to, at, _WORD), chosen])


@cache
def _has_compress() -> bool:
    """Return whether kernels are compiled for a processor that compresses vectors."""
    features = binding.get_host_cpu_features()
    return config.CPU_NAME is None and config.CPU_FEATURES is None and bool(features.get("avx512f"))


def _box_squares(b: Any, boxes: Any, low: Any, high: Any, dims: Any, lanes: int) -> list[Any]:
    """Return the squared distances from `lanes` boxes to the box between the points `low` and `high`."""

    def gap(dimension: Any, line: int) -> Any:
        lower = b.add(b.mul(dimension, _WORD(2 * lanes)), _WORD(_LANES * line))
        below = b.fsub(_line(b, boxes, lower), _value(b, high, dimension))
        above = b.fsub(_value(b, low, dimension), _line(b, boxes, b.add(lower, _WORD(lanes))))
        larger = b.select(b.fcmp_ordered(">", below, above), below, above)
        return b.select(b.fcmp_ordered("<", larger, _ZERO), _ZERO, larger)

    return _sum_of_squares(b, dims, lanes // _LANES, gap)


def _near(b: Any, boxes: Any, low: Any, high: Any, dims: Any, bound: Any, lanes: int) -> Any:
    return _compare(b, _box_squares(b, boxes, low, high, dims, lanes), bound)


def _nearest(b: Any, node: Any, query: Any, dims: Any, bound: Any, allowed: Any, out: Any) -> Any:
    sums = _box_squares(b, node, query, query, dims, FANOUT)
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


_W, _D = "int64", "float64"
block_squares: Callable[[int, int, int, float, int], int] = define(
    lambda b, block, query, dims, bound, out: _store_and_compare(b, _block_sums(b, block, query, dims), out, bound),
    *(_W, _W, _W, _W, _D, _W),
)
"""Store the squared distances of `BLOCK` points at `out`; return a mask of those that are at most `bound`.

`block_squares(block, query, dims, bound, out)`; a block has `BLOCK` doubles for each dimension.
"""
keep_block: Callable[[int, int, int, float, int, int, int], int] = define(_keep_block, _W, _W, _W, _W, _D, _W, _W, _W)
"""Store the squares of those points of a block that are at most `bound`, and their slots; return how many there are.

`keep_block(block, query, dims, bound, first, squares, slots)`; the slot of a point is `first` and 8 for each point
before it. Up to `BLOCK` words may be overwritten behind what is stored.
"""
nearest_box: Callable[[int, int, int, float, int, int], int] = define(_nearest, _W, _W, _W, _W, _D, _W, _W)
"""The same for the boxes of a node among those in the mask `allowed`; the nearest one is in the bits from `FANOUT` on.

`nearest_box(node, query, dims, bound, allowed, out)`; a node has `FANOUT` lower and upper ends for each dimension.
"""
near_children: Callable[[int, int, int, int, float], int] = define(
    lambda b, node, low, high, dims, bound: _near(b, node, low, high, dims, bound, FANOUT), _W, _W, _W, _W, _W, _D
)
"""Return a mask of the boxes of a node whose squared distance to the box between two points is at most `bound`.

`near_children(node, low, high, dims, bound)`.
"""
near_boxes: Callable[[int, int, int, int, float], int] = define(
    lambda b, boxes, low, high, dims, bound: _near(b, boxes, low, high, dims, bound, _LANES), _W, _W, _W, _W, _W, _D
)
"""The same for `LINE_POINTS` boxes: for each dimension their lower, then their upper ends."""
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
