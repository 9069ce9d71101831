"""Checks a finished condition: it has terms that relate both sides, and an OR uses one column of each side."""

from __future__ import annotations

from millrace.host.base.errors import PredicateError
from millrace.host.base.types import Side
from millrace.host.expr.condition import Condition, columns_of, sides_of


def check(condition: Condition) -> None:
    """Raise an error if the parts of a condition are valid, but not their combination."""
    _check_terms(condition)
    _check_bands(condition)


def _check_terms(condition: Condition) -> None:
    """Check that every comparison has a column and every band a comparison that relates both sides."""
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
    """Check that an OR uses one column of r and one of s."""
    if len(condition.bands) == 1:
        return
    first: dict[Side, str] = {}
    for term in condition.comparisons():
        for column in columns_of(term):
            name = first.setdefault(column.side, column.name)
            if column.name != name:
                reason = f"every part of an OR must use the same two columns: `{name}` of {column.side}"
                advice = "use that one, or join by each part separately and combine the results"
                raise PredicateError(f"{reason}, not `{column.name}`: {advice}", condition.text, *column.span)
