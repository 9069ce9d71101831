"""Intrinsics for ranks: arrays of uint16, compared many at a time, and the search of a group of words.

Defined like those of `intrinsics.py`, with vectors of the width that the processor compares in one instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from millrace.host.runtime.intrinsics import (
    _W,
    _WORD,
    WIDE_LANES,
    _before,
    _broadcast,
    _flags,
    _vector,
    _vector_bits,
    codegen,
    define,
)
from millrace.host.runtime.jit import inline

RANK_LANES = 64
"""Ranks that `ranks_within` compares."""
RANK_SPAN = 128
"""Ranks that `ranks_below` reads."""
_RANK = ir.IntType(16)


def _ranks_within(b: Any, where: Any, index: Any, low: Any, span: Any) -> Any:
    vector, found = ir.VectorType(_RANK, _vector_bits() // 16), _WORD(0)
    lower, spans = (_broadcast(b, b.trunc(one, _RANK), vector) for one in (low, span))
    for at in range(0, RANK_LANES, vector.count):
        above = b.sub(_vector(b, where, vector, b.add(index, _WORD(at))), lower)
        found = b.or_(found, b.shl(_flags(b, b.icmp_unsigned("<=", above, spans)), _WORD(at)))
    return found


def _ranks_below(b: Any, where: Any, index: Any, count: Any, bound: Any) -> Any:
    vector = ir.VectorType(_RANK, _vector_bits() // 16)
    counts, bounds = (_broadcast(b, b.trunc(one, _RANK), vector) for one in (count, bound))
    total = ir.Constant(vector, [0] * vector.count)
    for at in range(0, RANK_SPAN, vector.count):
        early = b.icmp_unsigned("<", ir.Constant(vector, list(range(at, at + vector.count))), counts)
        below = b.icmp_unsigned("<", _vector(b, where, vector, b.add(index, _WORD(at))), bounds)
        total = b.sub(total, b.sext(b.and_(early, below), vector))
    kind = ir.FunctionType(_RANK, [vector])
    add = codegen.get_or_insert_function(b.module, kind, f"llvm.vector.reduce.add.v{vector.count}i16")
    return b.zext(b.call(add, [total]), _WORD)


group_below: Callable[[int, Any], int] = _before(">=", WIDE_LANES)
"""Count the leading words of `WIDE_LANES` that are below a bound."""
ranks_within: Callable[[int, int, int, int], int] = define(_ranks_within, _W, _W, _W, _W, _W)
"""Return a bit mask of which of the `RANK_LANES` ranks from `where[index]` on are in the range `low .. low + span`."""
ranks_below: Callable[[int, int, int, int], int] = define(_ranks_below, _W, _W, _W, _W, _W)
"""Count which of `count` ranks from `where[index]` on are below a bound: `ranks_below(where, index, count, bound)`.

The count is at most `RANK_SPAN`; so many are read in any case.
"""


@inline
def first_bits(count: int) -> int:
    """A mask of the lowest `count` bits, for a count above 0."""
    return -1 if count >= 64 else (1 << count) - 1
