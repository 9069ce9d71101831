"""Columns, `r.x` and `s.x`, and the reasons why other names are none."""

from __future__ import annotations

from sqlglot import TokenType, exp

from millrace.host.base.types import Side
from millrace.host.expr.condition import Column
from millrace.predicate.cursor import Cursor
from millrace.predicate.refusals import PREFIX_REASONS, quote_advice
from millrace.predicate.tokens import span_of

_SIDES: dict[str, Side] = {"r": "r", "s": "s"}


def read_column(cursor: Cursor, node: exp.Expr) -> Column:
    """`r.x`: a side, in either case unless it is quoted, and a name as it is written."""
    start = cursor.at
    names = [cursor.take()]
    while cursor.kind() is TokenType.DOT:
        cursor.at += 1
        names.append(cursor.take())
    span = cursor.since(start)
    if isinstance(node.this, exp.Star):
        cursor.fail(PREFIX_REASONS[TokenType.STAR], span)
    parts = node.parts if isinstance(node, exp.Column) else []
    if [token.text for token in names] != [part.name for part in parts]:
        cursor.at = start
        cursor.misfit()
    if not isinstance(node.this, exp.Identifier):
        cursor.fail(quote_advice(names[-1].text), span_of(names[-1]))
    if len(names) == 1:
        cursor.fail(_bare_reason(cursor.written(span)), span)
    if len(names) > 2:
        tail = ".".join(token.text for token in names[1:])
        reason = f'has more than two parts, only r.x and s.x are allowed: if the column is "{tail}", quote it'
        cursor.fail(f"`{cursor.written(span)}` {reason}", span)
    table, name = names
    side = _SIDES.get(table.text if table.token_type is TokenType.IDENTIFIER else table.text.lower())
    if side is None:
        reason = "is no side: the two tables are called r and s, so write r.x or s.x"
        cursor.fail(f"`{cursor.written(span_of(table))}` {reason}", span_of(table))
    return Column(side, name.text, span)


def _bare_reason(written: str) -> str:
    """Why a single name is no column."""
    if written.lower() in _SIDES:
        return f"`{written}` is a table, not a column: write one of its columns, such as {written}.x"
    return f"`{written}` does not say which table it is of: write r.{written} or s.{written}"
