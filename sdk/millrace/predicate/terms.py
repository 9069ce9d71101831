"""What a finished condition must say: terms that relate the two sides, and an OR over one column of each."""

from __future__ import annotations

from millrace.host.base.errors import PredicateError
from millrace.host.base.types import Side
from millrace.host.expr.condition import Condition, columns_of, sides_of


def check(condition: Condition) -> None:
    """Refuse a condition whose every part is allowed, but not together."""
    _check_terms(condition)
    _check_bands(condition)


def _check_terms(condition: Condition) -> None:
    """Every comparison has a column; every band has one that relates the two sides."""
    for term in condition.comparisons():
        if not sides_of(term):
            reason = "compares constants only: leave it out, or name a column"
            raise PredicateError(f"`{condition.text[slice(*term.span)]}` {reason}", condition.text, *term.span)
    for band in condition.bands:
        if not any(len(sides_of(term)) == 2 for term in band):
            where = "the condition" if len(condition.bands) == 1 else "this part of the OR"
            reason = f"no term of {where} relates r and s: add one with a column of each, such as r.x < s.x"
            raise PredicateError(reason, condition.text, band[0].span[0], band[-1].span[1])


def _check_bands(condition: Condition) -> None:
    """An OR is over one column of r and one of s."""
    if len(condition.bands) == 1:
        return
    first: dict[Side, str] = {}
    for term in condition.comparisons():
        for column in columns_of(term):
            name = first.setdefault(column.side, column.name)
            if column.name != name:
                reason = f"every part of an OR must use the same two columns, here `{name}` of {column.side}"
                advice = "use that one, or join by each part alone and unite the results"
                raise PredicateError(f"{reason}, not `{column.name}`: {advice}", condition.text, *column.span)
