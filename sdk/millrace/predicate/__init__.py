"""Parses the text of an `on` condition into a `Condition`: sqlglot parses, this package checks and converts its tree.

**How.** sqlglot accepts too much: it drops unary plus, comments and a missing `AND` of `BETWEEN`, rewrites
`INTERVAL`s (it reads `'.5 hours'` as 5 hours) and keeps no positions for most nodes. So `reader` walks the tree in
the order of the text, with a cursor over sqlglot's own tokens. Each node must consume exactly the tokens of its
kind. Spans come from these tokens, literals are read from the text itself, and a text whose tree and tokens differ
is rejected. So no part of the text is skipped or ambiguous.

**Modules.** `tokens` tokenizes the text, `tree` calls sqlglot's parser, `reader` walks the tree with a `cursor` and
calls `columns` and `literals`, `terms` checks the finished condition, and `error_texts` has the error texts that
several modules share.

**Normal forms.** `BETWEEN` becomes `>=` and `<=`, both with the span of the full term. `!=` becomes `<>`. A minus
before a number or an interval is folded into it, through parentheses and other signs: `-5` and `-(5)` are
`Number(-5)`; before anything else it is `Negate`. Unary plus is removed. `'…'`, `X'…'`, `TRUE` and `FALSE` are
`Constant`s, each alone on one side of `=` or `<>`. Names are kept as written; `R.x` is side `r`. The span of a sum,
product or negation includes the parentheses around it; the spans of columns, literals and comparisons do not.

**Limits.** `MAX_TEXT` characters; `MAX_NESTING` nested parentheses and signs, which keeps sqlglot's parser (20 stack
frames each) below Python's recursion limit; `MAX_DEPTH` levels of the resulting tree, so that recursive code over it
is safe; `MAX_NUMBER` characters of a number, and the same bound on its exponent. This package imports sqlglot, so
`import millrace` must not import it.
"""

from __future__ import annotations

from millrace.host.base.errors import ArgumentError, PredicateError
from millrace.host.expr.condition import Condition
from millrace.predicate.cursor import Cursor
from millrace.predicate.literals import MAX_NUMBER
from millrace.predicate.reader import MAX_DEPTH, read
from millrace.predicate.terms import check
from millrace.predicate.tokens import MAX_NESTING, tokenize
from millrace.predicate.tree import parse_tree

__all__ = ["MAX_DEPTH", "MAX_NESTING", "MAX_NUMBER", "MAX_TEXT", "parse"]

MAX_TEXT = 10_000


def parse(text: str) -> Condition:
    """Parse `text` into a condition; a `PredicateError` points at the part that is not allowed."""
    if not isinstance(text, str):
        raise ArgumentError(
            f"on must be a str that holds a SQL condition, not {type(text).__name__}: "
            'write it like on="r.power < s.power AND r.cool > s.cool"'
        )
    if len(text) > MAX_TEXT:
        raise PredicateError(
            f"the condition has {len(text)} characters, at most {MAX_TEXT} are allowed: "
            "write fewer terms, or compute columns before the join"
        )
    try:
        tokens = tokenize(text)
        bands = read(Cursor(text, tokens), parse_tree(text, tokens))
    except RecursionError:
        reason = (
            "the condition is nested too deeply for the call stack: use fewer parentheses, or call with a shorter stack"
        )
        raise PredicateError(reason, text) from None
    condition = Condition(text, tuple(tuple(band) for band in bands))
    check(condition)
    return condition
