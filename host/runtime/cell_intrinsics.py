"""Intrinsics for cells: up to eight uint32 in ascending order, the partners of one tuple (`short_matches.py`).

Defined like those of `intrinsics.py`. Values in a cell count from the first visible position; lanes without a partner
hold larger values, so that they are at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from millrace.host.runtime.intrinsics import (
    _BIT,
    _BYTE,
    _FOUR,
    _FOUR_INTS,
    _INT,
    _NONE,
    _W,
    _broadcast,
    _flags,
    _pointer,
    _vector,
    define,
)

CELL = 8
"""Values in a cell."""
_CELL = ir.VectorType(_INT, CELL)
_STAGES: tuple[tuple[int, ...], ...] = (
    (1, 0, 3, 2, 5, 4, 7, 6),
    (3, 2, 1, 0, 7, 6, 5, 4),
    (1, 0, 3, 2, 5, 4, 7, 6),
    (7, 6, 5, 4, 3, 2, 1, 0),
    (2, 3, 0, 1, 6, 7, 4, 5),
    (1, 0, 3, 2, 5, 4, 7, 6),
)
"""A sorting network of eight lanes: the partner of each lane, by stage. The lower lane takes the smaller value."""


def _permuted(b: Any, v: Any, lanes: Sequence[int]) -> Any:
    return b.shuffle_vector(v, v, ir.Constant(ir.VectorType(_INT, len(lanes)), list(lanes)))


def _sorted(b: Any, v: Any) -> Any:
    for partner in _STAGES:
        other = _permuted(b, v, partner)
        less = b.icmp_unsigned("<", v, other)
        upper = ir.Constant(ir.VectorType(_BIT, CELL), [int(p < lane) for lane, p in enumerate(partner)])
        v = b.select(upper, b.select(less, other, v), b.select(less, v, other))
    return v


def _visible(b: Any, v: Any, length: Any) -> Any:
    return b.ctpop(_flags(b, b.icmp_unsigned("<", v, _broadcast(b, b.trunc(length, _INT), _CELL))))


def _put_cell(b: Any, source: Any, held: Any, length: Any, to: Any) -> Any:
    early = b.icmp_unsigned("<", ir.Constant(_CELL, list(range(CELL))), _broadcast(b, b.trunc(held, _INT), _CELL))
    v = b.select(early, _vector(b, source, _CELL), ir.Constant(_CELL, [0xFFFFFFFF] * CELL))
    b.store(_sorted(b, v), _pointer(b, to, _CELL), align=4)
    return _visible(b, v, length)


def _shift_ids(b: Any, source: Any, base: Any, to: Any) -> None:
    moved = b.add(_vector(b, source, _FOUR_INTS), _broadcast(b, b.trunc(base, _INT), _FOUR_INTS))
    b.store(moved, _pointer(b, to, _FOUR_INTS), align=4)


def _take_half(b: Any, cell: Any, base: Any, own: Any, out: Any, own_out: Any) -> None:
    found = b.add(b.zext(_vector(b, cell, _FOUR_INTS), _FOUR), _broadcast(b, base, _FOUR))
    b.store(found, _pointer(b, out, _FOUR), align=8)
    b.store(_broadcast(b, own, _FOUR), _pointer(b, own_out, _FOUR), align=8)


def _prefetch_to_write(b: Any, where: Any) -> None:
    byte = _BYTE.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, _INT, _INT, _INT])
    function = b.module.declare_intrinsic("llvm.prefetch", [byte], kind)
    b.call(function, [b.inttoptr(where, byte), _INT(1), _INT(3), _INT(1)])


put_cell: Callable[[int, int, int, int], int] = define(_put_cell, _W, _W, _W, _W, _W)
"""Sort the first `held` of eight uint32 into a cell: `put_cell(source, held, length, cell)`.

Returns how many are below `length`."""
visible_in_cell: Callable[[int, int], int] = define(
    lambda b, cell, length: _visible(b, _vector(b, cell, _CELL), length), _W, _W, _W
)
"""Count the values of a cell below `length`: `visible_in_cell(cell, length)`."""
shift_ids: Callable[[int, int, int], None] = define(_shift_ids, _NONE, _W, _W, _W)
"""Write four uint32 with `base` added to each, modulo 2^32: `shift_ids(source, base, to)`."""
take_half: Callable[[int, int, int, int, int], None] = define(_take_half, _NONE, _W, _W, _W, _W, _W)
"""Write four uint32 as int64 with `base` added, and `own` four times: `take_half(cell, base, own, out, own_out)`."""
prefetch_to_write: Callable[[int], None] = define(_prefetch_to_write, _NONE, _W)
"""Prefetch the cache line at an address for writing."""
