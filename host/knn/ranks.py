"""Ranks of squared distances among each other, in SIMD registers: each is compared with all others.

For the few candidates of a query this takes less time than a sort: there is no branch but the loop. The ranks of n
distances without ties add up to n (n - 1) / 2; equal ones get the same rank, and the sum is less. Then tie keys are
compared too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from llvmlite import ir

from millrace.host.knn.lanes import LINE_POINTS
from millrace.host.runtime.intrinsics import _broadcast, _element, define
from millrace.host.runtime.jit import inline

_WORD, _DOUBLE = ir.IntType(64), ir.DoubleType()
_WORDS, _DOUBLES = ir.VectorType(_WORD, LINE_POINTS), ir.VectorType(_DOUBLE, LINE_POINTS)
_NO_RANKS = ir.Constant(_WORDS, None)


def _line(b: Any, where: Any, at: Any, kind: Any) -> Any:
    return b.load(b.bitcast(_element(b, where, at, kind.element), kind.as_pointer()), align=8)


def _ranks(b: Any, first: Any, squares: Any, ties: Any, count: Any, out: Any, lines: int, tied: bool) -> None:
    starts = [b.add(first, _WORD(LINE_POINTS * i)) for i in range(lines)]
    own = [_line(b, squares, at, _DOUBLES) for at in starts]
    own_ties = [_line(b, ties, at, _WORDS) for at in starts] if tied else []
    entry, loop, done = b.block, b.append_basic_block("rank"), b.append_basic_block("ranked")
    b.branch(loop)

    b.position_at_end(loop)
    i, ranks = b.phi(_WORD), [b.phi(_WORDS) for _ in starts]
    other = _broadcast(b, b.load(_element(b, squares, i, _DOUBLE)), _DOUBLES)
    before = [b.fcmp_ordered("<", other, one) for one in own]
    if tied:
        tie = _broadcast(b, b.load(_element(b, ties, i, _WORD)), _WORDS)
        same = [b.fcmp_ordered("==", other, one) for one in own]
        less = [b.icmp_signed("<", tie, one) for one in own_ties]
        before = [b.or_(x, b.and_(y, z)) for x, y, z in zip(before, same, less, strict=True)]
    more = [b.add(rank, b.zext(flags, _WORDS)) for rank, flags in zip(ranks, before, strict=True)]
    after = b.add(i, _WORD(1))
    b.cbranch(b.icmp_signed("<", after, count), loop, done)
    for phi, start, later in ((i, _WORD(0), after), *((a, _NO_RANKS, z) for a, z in zip(ranks, more, strict=True))):
        phi.add_incoming(start, entry)
        phi.add_incoming(later, loop)

    b.position_at_end(done)
    for at, rank in zip(starts, more, strict=True):
        b.store(rank, b.bitcast(_element(b, out, at, _WORD), _WORDS.as_pointer()), align=8)


def _ranks_of(lines: int, tied: bool = False) -> Callable[[int, int, int, int, int], None]:
    word = "int64"
    made: Callable[[int, int, int, int, int], None] = define(
        partial(_ranks, lines=lines, tied=tied), "void", word, word, word, word, word
    )
    return made


_rank_1, _rank_2, _rank_3, _rank_4 = (_ranks_of(lines) for lines in (1, 2, 3, 4))
_rank_tied = _ranks_of(1, tied=True)


@inline
def rank(squares: int, count: int, out: int) -> None:
    """Write how many of `count` squares are less than each of them; up to 31 words behind both lists may be used."""
    at = 0
    while count - at > 4 * LINE_POINTS:
        _rank_4(at, squares, 0, count, out)
        at += 4 * LINE_POINTS
    left = count - at
    if left > 3 * LINE_POINTS:
        _rank_4(at, squares, 0, count, out)
    elif left > 2 * LINE_POINTS:
        _rank_3(at, squares, 0, count, out)
    elif left > LINE_POINTS:
        _rank_2(at, squares, 0, count, out)
    elif left > 0:
        _rank_1(at, squares, 0, count, out)


@inline
def rank_with_ties(squares: int, ties: int, count: int, out: int) -> None:
    """The same, in the order (square, tie key)."""
    for at in range(0, count, LINE_POINTS):
        _rank_tied(at, squares, ties, count, out)
