"""Compares conditions by meaning, and writes other names for their columns into the text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from millrace.errors import MillraceError
from millrace.host.base.types import Side
from millrace.host.expr.condition import Absolute, Arithmetic, Comparison, columns_of
from millrace.ingest.arguments import parse_condition

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}


def same_meaning(one: str, other: str) -> bool:
    """Whether two conditions have the same terms.

    Spaces, the order of terms and the sides of a comparison, a sum, a product or `abs(a - b)` do not matter: whatever
    the types, the result is the same. Terms that are rearranged (`r.a - s.b < 1`, `r.a < s.b + 1`) are other terms.
    """
    try:
        return _meaning(one) == _meaning(other)
    except MillraceError:
        return False


def _meaning(text: str) -> list[list[str]]:
    """The terms in a normal form and order."""
    return sorted(sorted({_term(term) for term in band}) for band in parse_condition(text).bands)


def _term(term: Comparison) -> str:
    left, right, op = _tree(term.left), _tree(term.right), str(term.op)
    return f"{left} {op} {right}" if left <= right else f"{right} {_MIRRORED[op]} {left}"


def _tree(node: Any) -> str:
    """An expression without the places of its parts in the text."""
    if not hasattr(node, "span"):
        return repr(node)
    if isinstance(node, Arithmetic) and node.op in "+*":
        return f"{node.op}({', '.join(sorted((_tree(node.left), _tree(node.right))))})"
    if isinstance(node, Absolute) and isinstance(node.operand, Arithmetic) and node.operand.op == "-":
        return f"distance({', '.join(sorted((_tree(node.operand.left), _tree(node.operand.right))))})"
    parts = [_tree(getattr(node, one.name)) for one in fields(node) if one.name != "span"]
    return f"{type(node).__name__}({', '.join(parts)})"


def with_names(text: str, name: Callable[[Side, str], str]) -> str:
    """The condition with other names for its columns: `name(side, column)` gives each."""
    found = {c.span: c for term in parse_condition(text).comparisons() for c in columns_of(term)}
    for span, column in sorted(found.items(), reverse=True):
        wanted = name(column.side, column.name)
        if wanted != column.name:
            quoted = wanted.replace('"', '""')
            text = f'{text[: span[0]]}{column.side}."{quoted}"{text[span[1] :]}'
    return text
