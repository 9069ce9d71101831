"""The `on` condition's text to a `Condition`: sqlglot parses, this package checks and translates its tree.

**How.** sqlglot's tree is rich but forgiving: it drops unary plus, comments and a missing `AND` of
`BETWEEN`, rewrites `INTERVAL`s (it reads `'.5 hours'` as 5 hours) and keeps no places for most nodes. So
the tree is walked in the order of the text with a cursor over sqlglot's own tokens: each node must take
exactly the tokens that its kind is written with. Spans come from those tokens, literals are read from the
text itself, and where tree and tokens disagree the text is refused: nothing in it can be skipped or read in
two ways.

**Where.** `tokens` cuts the text, `tree` has sqlglot parse it, `reader` walks the tree with a `cursor`
and leaves columns and literals to `columns` and `literals`, `terms` checks the finished condition, and
`refusals` has the words for what is not allowed in several places.

**Normal forms.** `BETWEEN` becomes `>=` and `<=`, both with the span of the whole term. `!=` becomes `<>`.
A minus before a number or an interval is folded into it, through parentheses and other signs: `-5` and
`-(5)` are `Number(-5)`; before anything else it is `Negate`. Unary plus vanishes. Names are kept as
written; `R.x` is side `r`. The span of a sum, product or negation includes parentheses written around it;
those of columns, literals and comparisons do not.

**Limits.** `MAX_TEXT` characters; `MAX_NESTING` parentheses and signs inside each other, which keeps
sqlglot's parser (20 stack frames each) below Python's recursion limit; `MAX_DEPTH` levels of the resulting
tree, so that code which recurses over it is safe; `MAX_NUMBER` characters of a number and the same bound on
its exponent. sqlglot is imported here, so `import millrace` must not import this package.
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
    """The condition that `text` says; a `PredicateError` points at the place that is not allowed."""
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
        reason = "too deeply nested for the call stack: use fewer parentheses, or call from less deep code"
        raise PredicateError(reason, text) from None
    condition = Condition(text, tuple(tuple(band) for band in bands))
    check(condition)
    return condition
