"""Reads columns, `r.x` and `s.x`, and explains why other names are not allowed."""

from __future__ import annotations

from sqlglot import TokenType, exp

from millrace.host.base.types import Side
from millrace.host.expr.condition import Column
from millrace.predicate.cursor import Cursor
from millrace.predicate.error_texts import PREFIX_REASONS, quote_advice
from millrace.predicate.tokens import span_of

_SIDES: dict[str, Side] = {"r": "r", "s": "s"}


def read_column(cursor: Cursor, node: exp.Expr) -> Column:
    """Read `r.x`: a side (case-insensitive unless quoted) and a name, kept as written."""
    start = cursor.at
    names = [cursor.take()]
    while cursor.kind() is TokenType.DOT:
        cursor.at += 1
        names.append(cursor.take())
    span = cursor.span_since(start)
    if isinstance(node.this, exp.Star):
        cursor.fail(PREFIX_REASONS[TokenType.STAR], span)
    parts = node.parts if isinstance(node, exp.Column) else []
    if [token.text for token in names] != [part.name for part in parts]:
        cursor.at = start
        cursor.fail_unexpected()
    if not isinstance(node.this, exp.Identifier):
        cursor.fail(quote_advice(names[-1].text), span_of(names[-1]))
    if len(names) == 1:
        cursor.fail(_bare_reason(cursor.text_of(span)), span)
    if len(names) > 2:
        tail = ".".join(token.text for token in names[1:])
        reason = f'has more than two parts, only r.x and s.x are allowed: if the column is "{tail}", quote it'
        cursor.fail(f"`{cursor.text_of(span)}` {reason}", span)
    table, name = names
    side = _SIDES.get(table.text if table.token_type is TokenType.IDENTIFIER else table.text.lower())
    if side is None:
        reason = "is not a side: the two tables are called r and s, so write r.x or s.x"
        cursor.fail(f"`{cursor.text_of(span_of(table))}` {reason}", span_of(table))
    return Column(side, name.text, span)


def _bare_reason(written: str) -> str:
    """Return the reason why a single name is not a column."""
    if written.lower() in _SIDES:
        return f"`{written}` is a table, not a column: write one of its columns, such as {written}.x"
    return f"`{written}` does not name its table: write r.{written} or s.{written}"
