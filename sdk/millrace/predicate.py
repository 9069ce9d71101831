"""The `on` condition's text to a `Condition`: sqlglot parses, this module checks and translates its tree.

**How.** sqlglot's tree is rich but forgiving: it drops unary plus, comments and a missing `AND` of
`BETWEEN`, rewrites `INTERVAL`s (it reads `'.5 hours'` as 5 hours) and keeps no places for most nodes. So
the tree is walked in the order of the text with a cursor over sqlglot's own tokens: each node must take
exactly the tokens that its kind is written with. Spans come from those tokens, literals are read from the
text itself, and where tree and tokens disagree the text is refused: nothing in it can be skipped or read in
two ways.

**Normal forms.** `BETWEEN` becomes `>=` and `<=`, both with the span of the whole term. `!=` becomes `<>`.
A minus before a number or an interval is folded into it, through parentheses and other signs: `-5` and
`-(5)` are `Number(-5)`; before anything else it is `Negate`. Unary plus vanishes. Names are kept as
written; `R.x` is side `r`. The span of a sum, product or negation includes parentheses written around it;
those of columns, literals and comparisons do not.

**Limits.** `MAX_TEXT` characters; `MAX_NESTING` parentheses and signs inside each other, which keeps
sqlglot's parser (20 stack frames each) below Python's recursion limit; `MAX_DEPTH` levels of the resulting
tree, so that code which recurses over it is safe; `MAX_NUMBER` characters of a number and the same bound on
its exponent. sqlglot is imported here, so `import millrace` must not import this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from fractions import Fraction
from itertools import pairwise
from typing import Literal, NoReturn

from sqlglot import Dialect, Token, TokenType, exp
from sqlglot.errors import ParseError, TokenError

from millrace.host.condition import (
    Absolute,
    Arithmetic,
    Column,
    CompareOp,
    Comparison,
    Condition,
    Duration,
    Expression,
    Instant,
    Negate,
    Number,
    Side,
    Span,
    columns_of,
    sides_of,
)
from millrace.host.errors import ArgumentError, PredicateError

MAX_TEXT = 10_000
MAX_NESTING = 32
MAX_DEPTH = 200
MAX_NUMBER = 400

_ALLOWED = (
    "a condition is comparisons (= < <= > >= <> BETWEEN) joined by AND, or an OR of bands, "
    "of columns r.x and s.x, numbers, + - *, abs(…), TIMESTAMP '…', DATE '…' and INTERVAL '…'"
)
_COMPARE: dict[str, CompareOp] = {
    "=": "=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
    "<>": "<>",
    "!=": "<>",
}
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_OPERATORS: dict[type[exp.Expr], tuple[TokenType, Literal["+", "-", "*"]]] = {
    exp.Add: (TokenType.PLUS, "+"),
    exp.Sub: (TokenType.DASH, "-"),
    exp.Mul: (TokenType.STAR, "*"),
}
_SIDES: dict[str, Side] = {"r": "r", "s": "s"}
_QUOTED = {TokenType.IDENTIFIER, TokenType.STRING, TokenType.NATIONAL_STRING}
_SIGNS = {TokenType.DASH, TokenType.PLUS, TokenType.NOT, TokenType.TILDE}

_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]+))?")
_QUANTITY = re.compile(rf"\s*([+-]?)\s*({_NUMBER.pattern})\s*([^\W\d_]*)\s*")
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[ Tt](\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?(?: ?(?:([Zz])|([+-])(\d\d)(?::?(\d\d))?))?)?",
    re.ASCII,
)
_SECOND = 10**9
_UNITS: dict[int, str] = {
    1: "ns nanosecond nanoseconds nano nanos",
    10**3: "us µs μs microsecond microseconds micro micros usec usecs",
    10**6: "ms millisecond milliseconds milli millis msec msecs",
    _SECOND: "s sec secs second seconds",
    60 * _SECOND: "min mins minute minutes",
    3600 * _SECOND: "h hr hrs hour hours",
    86400 * _SECOND: "d day days",
    7 * 86400 * _SECOND: "w week weeks",
}
_NANOSECONDS = {name: ns for ns, names in _UNITS.items() for name in names.split()}
_CALENDAR = "mon mons month months q quarter quarters y yr yrs year years decade decades century centuries"
_CALENDAR_UNITS = frozenset(_CALENDAR.split())
_UNIT_LIST = "NANOSECOND, MICROSECOND, MILLISECOND, SECOND, MINUTE, HOUR, DAY or WEEK"

_BITWISE = "of the operators only + - * are allowed: compute the column before the join"
_TEXT = "a text literal cannot be compared: use a number, TIMESTAMP '…' or DATE '…'"
_PARAMETER = "a parameter cannot be filled in: write the value itself"
_PREFIX_REASONS: dict[TokenType, str] = {
    TokenType.STRING: _TEXT,
    TokenType.NATIONAL_STRING: _TEXT,
    TokenType.NULL: "a comparison with NULL is never true: leave the term out",
    TokenType.TRUE: "TRUE cannot be an operand or a term: leave it out",
    TokenType.FALSE: "FALSE cannot be an operand or a term: leave it out",
    TokenType.NOT: "NOT is not allowed: write the opposite comparison, such as >= for NOT <",
    TokenType.CASE: f"CASE is not allowed: {_ALLOWED}; compute the column before the join",
    TokenType.TILDE: _BITWISE,
    TokenType.STAR: "`*` does not name a column: write one, such as r.x",
    TokenType.PLACEHOLDER: _PARAMETER,
    TokenType.PARAMETER: _PARAMETER,
}
# Refused before sqlglot parses: it would split the text, or log warnings of its own about JSON paths.
_BANNED: dict[TokenType, str] = {
    TokenType.SEMICOLON: "`;` is not allowed: give one condition without it",
    TokenType.L_BRACKET: "a column's elements cannot be compared: compute the column before the join",
    TokenType.COLON: _PARAMETER,
    TokenType.L_BRACE: "",
    TokenType.ARROW: "",
    TokenType.DARROW: "",
    TokenType.HASH_ARROW: "",
    TokenType.DHASH_ARROW: "",
}
_NULL_TEST = "is not allowed, only = < <= > >= <> BETWEEN are: nulls never match; filter them before the join"
_CAST = "only CAST('…' AS TIMESTAMP) and CAST('…' AS DATE) are allowed: cast columns before the join"
_DIVISION = "division is not allowed, only + - *: multiply both sides, or compute the column before the join"
_LIKE = "LIKE is not allowed: text cannot be compared; filter before the join"
_INFIX_REASONS: dict[str, str] = {
    "/": _DIVISION,
    "DIV": _DIVISION,
    "%": "the remainder `%` is not allowed, only + - *: compute the column before the join",
    "IS": f"IS {_NULL_TEST}",
    "ISNULL": f"ISNULL {_NULL_TEST}",
    "NOTNULL": f"NOTNULL {_NULL_TEST}",
    "<=>": f"`<=>` {_NULL_TEST}",
    "IN": "IN is not allowed: write an OR such as s.x = r.x + 1 OR s.x = r.x + 2, or filter before the join",
    "LIKE": _LIKE,
    "ILIKE": _LIKE,
    "NOT": "NOT is not allowed: write the opposite comparison, or filter before the join",
    "::": _CAST,
    "==": "`==` is not allowed: write = for equality",
    "AT": "AT TIME ZONE is not allowed: write TIMESTAMP '… +02:00', or convert the column before the join",
    **dict.fromkeys(("&", "|", "^", "<<", ">>", "||"), _BITWISE),
    "AS": "a name cannot be given here: leave AS out",
    "ESCAPE": _LIKE,
}

_Band = list[Comparison]
_Rule = Callable[["_Reader", exp.Expr, int], Expression]


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
        tokens = _tokens(text)
        reader = _Reader(text, tokens)
        bands = reader.condition(_tree(text, tokens))
    except RecursionError:
        reason = "too deeply nested for the call stack: use fewer parentheses, or call from less deep code"
        raise PredicateError(reason, text) from None
    condition = Condition(text, tuple(tuple(band) for band in bands))
    _check_terms(condition)
    _check_bands(condition)
    return condition


def _span(first: Token, last: Token | None = None) -> Span:
    """The text from one token to the end of another."""
    return first.start, (last or first).end + 1


# --- before the walk: tokens and sqlglot's parse ----------------------------------------------------------


def _tokens(text: str) -> list[Token]:
    """sqlglot's tokens; what its parser would skip, or recurse into too deeply, is refused first."""
    if not text.strip():
        raise PredicateError(f"the condition is empty: {_ALLOWED}; write one such as r.x < s.x", text)
    try:
        tokens = Dialect.get_or_raise(None).tokenize(text)
    except TokenError:
        start = _open_quote(text)
        what = "something here never ends" if start is None else f"the quote {text[start]} is never closed"
        raise PredicateError(f"{what}: close it, or remove it", text, start or 0) from None
    _refuse_gaps(text, tokens)
    for token in tokens:
        if token.token_type in _BANNED:
            reason = _BANNED[token.token_type] or f"`{token.text}` cannot stand here: {_ALLOWED}"
            raise PredicateError(reason, text, *_span(token))
    _refuse_nesting(text, tokens)
    for dot, token in pairwise(tokens):
        # After a dot every word is a name, but sqlglot would take some (r.select) for keywords.
        if dot.token_type is TokenType.DOT and token.text.isidentifier() and token.token_type not in _QUOTED:
            token.token_type = TokenType.VAR
    return tokens


def _open_quote(text: str) -> int | None:
    """Where the quote that is still open at the end of the text was opened."""
    opened: int | None = None
    closed = start = -2
    for i, char in enumerate(text):
        if opened is None and char in "'\"":
            doubled = closed == i - 1 and text[closed] == char
            opened = start = start if doubled else i
        elif opened is not None and char == text[opened]:
            opened, closed = None, i
    return opened


def _refuse_gaps(text: str, tokens: list[Token]) -> None:
    """Comments are the only text that sqlglot puts into no token."""
    end = 0
    for start, after in [*((t.start, t.end + 1) for t in tokens), (len(text), len(text))]:
        if gap := text[end:start].strip():
            at = text.index(gap, end)
            hint = "put a space between two minus signs, or remove it" if gap.startswith("--") else "remove it"
            raise PredicateError(f"a comment is not allowed in a condition: {hint}", text, at, at + len(gap))
        end = after


def _refuse_nesting(text: str, tokens: list[Token]) -> None:
    """Bound how deeply parentheses and signs stand inside each other: sqlglot's parser recurses for each."""
    outer: list[int] = []
    depth = signs = 0
    for token in tokens:
        if token.token_type is TokenType.L_PAREN:
            outer.append(depth)
            depth, signs = depth + signs + 1, 0
        elif token.token_type is TokenType.R_PAREN:
            depth, signs = outer.pop() if outer else 0, 0
        else:
            signs = signs + 1 if token.token_type in _SIGNS else 0
        if depth + signs > MAX_NESTING:
            reason = f"more than {MAX_NESTING} parentheses and signs inside each other: leave out those not needed"
            raise PredicateError(reason, text, *_span(token))


def _tree(text: str, tokens: list[Token]) -> exp.Expr:
    """sqlglot's tree of the text."""
    try:
        trees = Dialect.get_or_raise(None).parser().parse_into(exp.Condition, tokens, text)
    except ParseError as error:
        raise _parse_failure(text, tokens, error) from None
    if len(trees) != 1 or trees[0] is None:
        reason = f"`{tokens[0].text}` does not begin a condition: {_ALLOWED}"
        raise PredicateError(reason, text, *_span(tokens[0]))
    return trees[0]


def _parse_failure(text: str, tokens: list[Token], error: ParseError) -> PredicateError:
    """Our words, and the place, for what sqlglot says."""
    details = error.errors[0] if error.errors else {}
    said = str(details.get("description") or "")
    place = (details.get("line"), details.get("col"))
    at = next((i for i, t in enumerate(tokens) if (t.line, t.col) == place), len(tokens) - 1)
    token = tokens[at]
    if (hole := _hole(tokens, at if not said.startswith("Required") else len(tokens))) is not None:
        return PredicateError(f"an operand is missing {hole[0]}: write a column or a literal there", text, *hole[1])
    if (lone := _unbalanced(tokens)) is not None:
        other = "(" if lone.text == ")" else ")"
        reason = f"`{lone.text}` has no matching `{other}`: add it, or remove this"
        return PredicateError(reason, text, *_span(lone))
    if at and (found := _joined_failure(text, tokens, at)) is not None:
        return found
    if said.startswith("The number of provided arguments"):
        reason = "too many arguments: abs takes one, and no other function is allowed"
        return PredicateError(reason, text, *_span(token))
    if said.startswith("Invalid numeric") and at:
        token = tokens[at - 1]
    hint = {"=>": "; did you mean >=", "&&": "; did you mean AND"}.get(token.text, "")
    reason = f"`{text[token.start : token.end + 1]}` cannot stand here{hint}: {_ALLOWED}"
    if token.token_type in (TokenType.STRING, TokenType.NATIONAL_STRING):
        reason = _TEXT
    return PredicateError(reason, text, *_span(token))


def _joined_failure(text: str, tokens: list[Token], at: int) -> PredicateError | None:
    """What is wrong with token `at` and the number that it is written next to: `1_000` or `r.2a`."""
    before, token = tokens[at - 1], tokens[at]
    joined = before.token_type is TokenType.NUMBER and before.end + 1 == token.start
    if not joined or not token.text.isidentifier():
        return None
    written = text[before.start : token.end + 1]
    reason = f"`{written}` is not a number: write one such as 1000, 1.5, .5 or 1e3"
    if at > 1 and tokens[at - 2].token_type is TokenType.DOT:
        reason = _quote_advice(written)
    return PredicateError(reason, text, *_span(before, token))


def _quote_advice(name: str) -> str:
    return f'`{name}` cannot stand here: if it is a column, write its name in double quotes, r."{name}"'


def _hole(tokens: list[Token], last: int) -> tuple[str, Span] | None:
    """The first place up to token `last` where an operand is missing, in words and as a span."""
    want_left = {*_COMPARE, "AND", "OR", "*", "/", "%", "|", "&", "^", "BETWEEN", ")"}
    want_right = want_left - {")"} | {"+", "-", "(", "NOT"}
    words = [_word(tokens, i) for i in range(min(last + 1, len(tokens)))]
    for i, word in enumerate(words):
        if word in want_left and i == 0:
            return f"before `{word}`", _span(tokens[i])
        if word in want_left and words[i - 1] in want_right:
            return f"between `{words[i - 1]}` and `{word}`", _span(tokens[i - 1], tokens[i])
    if len(words) == len(tokens) and words[-1] in want_right:
        return f"after `{words[-1]}`", _span(tokens[-1])
    return None


def _word(tokens: list[Token], at: int) -> str:
    """A token's text in capitals; empty for what is in quotes and for a name after a dot."""
    named = at > 0 and tokens[at - 1].token_type is TokenType.DOT
    return "" if named or tokens[at].token_type in _QUOTED else tokens[at].text.upper()


def _unbalanced(tokens: list[Token]) -> Token | None:
    """The first closing parenthesis that nothing opened, or else the last one that nothing closes."""
    opened: list[Token] = []
    for token in tokens:
        if token.token_type is TokenType.L_PAREN:
            opened.append(token)
        elif token.token_type is TokenType.R_PAREN:
            if not opened:
                return token
            opened.pop()
    return opened[-1] if opened else None


# --- the walk ---------------------------------------------------------------------------------------------


class _Reader:
    """Walks sqlglot's tree in the order of the text; `at` is the number of the next token."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self.text = text
        self.tokens = tokens
        self.at = 0

    # the cursor

    def kind(self, ahead: int = 0) -> TokenType | None:
        """What kind of token comes next, None at the end."""
        return self.tokens[self.at + ahead].token_type if self.at + ahead < len(self.tokens) else None

    def word(self, ahead: int = 0) -> str:
        """The next token's text in capitals, empty at the end and for anything in quotes."""
        kind = self.kind(ahead)
        return "" if kind is None or kind in _QUOTED else self.tokens[self.at + ahead].text.upper()

    def take(self, *kinds: TokenType) -> Token:
        """The next token, which must be of one of these kinds (of any if none is given)."""
        if self.kind() is None or (kinds and self.kind() not in kinds):
            self.misfit()
        self.at += 1
        return self.tokens[self.at - 1]

    def since(self, start: int) -> Span:
        """The span of the tokens from number `start` up to here."""
        return _span(self.tokens[start], self.tokens[max(start, self.at - 1)])

    def fail(self, reason: str, span: Span) -> NoReturn:
        raise PredicateError(reason, self.text, *span)

    def here(self) -> Span:
        """The span of the next token, or of the last."""
        return _span(self.tokens[min(self.at, len(self.tokens) - 1)])

    def misfit(self) -> NoReturn:
        """The next token is not what sqlglot's tree says: it skipped or rewrote something."""
        if self.kind() is None:
            self.fail(f"the condition ends too early: {_ALLOWED}", self.here())
        start, end = self.here()
        if (reason := _INFIX_REASONS.get(self.word())) is not None:
            self.fail(reason, (start, end))
        self.fail(f"`{self.text[start:end]}` cannot stand here: {_ALLOWED}", (start, end))

    # terms

    def condition(self, tree: exp.Expr) -> list[_Band]:
        """The whole text: one conjunction, or an OR of them."""
        bands = self.disjunction(tree)
        if self.kind() is not None:
            self.misfit()
        return bands

    def disjunction(self, node: exp.Expr) -> list[_Band]:
        """An OR at the top, in any parentheses."""
        if type(node) is exp.Paren:
            self.take(TokenType.L_PAREN)
            bands = self.disjunction(node.this)
            self.take(TokenType.R_PAREN)
            return bands
        leftmost, rest = _chain(node, (exp.Or,))
        if not rest:
            return [self.conjunction(node)]
        bands = self.disjunction(leftmost)
        for link in rest:
            self.take(TokenType.OR)
            bands += self.disjunction(link.args["expression"])
        return bands

    def conjunction(self, node: exp.Expr) -> _Band:
        """The comparisons of an AND, in any parentheses."""
        if type(node) is exp.Paren:
            self.take(TokenType.L_PAREN)
            terms = self.conjunction(node.this)
            self.take(TokenType.R_PAREN)
            return terms
        leftmost, rest = _chain(node, (exp.And,))
        if not rest:
            return self.term(node)
        terms = self.conjunction(leftmost)
        for link in rest:
            self.take(TokenType.AND)
            terms += self.conjunction(link.args["expression"])
        return terms

    def term(self, node: exp.Expr) -> _Band:
        """One comparison (two for a BETWEEN)."""
        if type(node) is exp.Or:
            self.conjunction(_chain(node, (exp.Or,))[0])
            reason = "stands below an AND, but joins whole bands only: write a AND (b OR c) as a AND b OR a AND c"
            self.fail(f"OR {reason}", self.here())
        if type(node) in _COMPARISONS:
            return [self.comparison(node)]
        if type(node) is exp.Between:
            return self.between(node)
        if type(node) not in _RULES:
            self.refuse(node, 0)
        found = self.expression(node, 0)
        name = self.text[slice(*found.span)]
        self.fail(f"`{name}` is not a comparison: compare it with something, as in r.x < s.x", found.span)

    def comparison(self, node: exp.Expr) -> Comparison:
        """`left op right`."""
        start = self.at
        if type(node.this) in _COMPARISONS:
            self.comparison(_chain(node, _COMPARISONS)[1][0])
            self.chained()
        left = self.expression(node.this, 1)
        written = self.word()
        if written not in _COMPARE:
            self.misfit()
        self.take()
        right = self.expression(node.args["expression"], 1)
        return Comparison(_COMPARE[written], left, right, self.since(start))

    def chained(self) -> NoReturn:
        """A comparison is an operand of another one."""
        reason = "a comparison cannot be an operand: write a < b AND b < c for a < b < c"
        self.fail(reason, self.here())

    def between(self, node: exp.Expr) -> _Band:
        """`x BETWEEN low AND high`, as two comparisons."""
        start = self.at
        value = self.expression(node.this, 1)
        self.take(TokenType.BETWEEN)
        low = self.expression(node.args["low"], 1)
        self.take(TokenType.AND)
        high = self.expression(node.args["high"], 1)
        span = self.since(start)
        return [Comparison(">=", value, low, span), Comparison("<=", value, high, span)]

    # operands

    def expression(self, node: exp.Expr, depth: int) -> Expression:
        """One operand; `depth` is its level in the tree of the comparison."""
        if depth > MAX_DEPTH:
            reason = f"the expression has more than {MAX_DEPTH} levels: shorten it, or group it with parentheses"
            self.fail(reason, self.here())
        while self.kind() is TokenType.PLUS:
            self.at += 1
        rule = _RULES.get(type(node))
        return rule(self, node, depth) if rule else self.refuse(node, depth)

    def arithmetic(self, node: exp.Expr, depth: int) -> Expression:
        """A chain of `+ - *`, iteratively: sqlglot's tree leans to the left."""
        start = self.at
        leftmost, rest = _chain(node, (exp.Add, exp.Sub, exp.Mul))
        found = self.expression(leftmost, depth + len(rest))
        for i, link in enumerate(rest):
            kind, op = _OPERATORS[type(link)]
            self.take(kind)
            right = self.expression(link.args["expression"], depth + len(rest) - i)
            found = Arithmetic(op, found, right, self.since(start))
        return found

    def parentheses(self, node: exp.Expr, depth: int) -> Expression:
        """`( … )`."""
        start = self.at
        self.take(TokenType.L_PAREN)
        inner = self.expression(node.this, depth)
        self.take(TokenType.R_PAREN)
        return replace(inner, span=self.since(start)) if isinstance(inner, Arithmetic | Negate) else inner

    def negate(self, node: exp.Expr, depth: int) -> Expression:
        """`-x`, folded into a literal."""
        start = self.at
        self.take(TokenType.DASH)
        inner = self.expression(node.this, depth + 1)
        span = self.since(start)
        if isinstance(inner, Number):
            return replace(inner, value=-inner.value, span=span)
        if isinstance(inner, Duration):
            return replace(inner, ns=-inner.ns, span=span)
        return Negate(inner, span)

    def absolute(self, node: exp.Expr, depth: int) -> Expression:
        """`abs(x)`."""
        start = self.at
        if self.word() != "ABS":
            self.misfit()
        self.take()
        self.take(TokenType.L_PAREN)
        inner = self.expression(node.this, depth + 1)
        self.take(TokenType.R_PAREN)
        return Absolute(inner, self.since(start))

    def column(self, node: exp.Expr, depth: int) -> Expression:
        """`r.x`, and the reasons why other names are none."""
        start = self.at
        names = [self.take()]
        while self.kind() is TokenType.DOT:
            self.at += 1
            names.append(self.take())
        span = self.since(start)
        name = names[-1]
        if isinstance(node.this, exp.Star):
            self.fail(_PREFIX_REASONS[TokenType.STAR], span)
        parts = node.parts if isinstance(node, exp.Column) else []
        if [token.text for token in names] != [part.name for part in parts]:
            self.at = start
            self.misfit()
        if not isinstance(node.this, exp.Identifier):
            self.fail(_quote_advice(name.text), _span(name))
        if len(names) == 1:
            self.fail(_bare_reason(self.text[slice(*span)]), span)
        if len(names) > 2:
            tail = ".".join(token.text for token in names[1:])
            reason = f'has more than two parts, only r.x and s.x are allowed: if the column is "{tail}", quote it'
            self.fail(f"`{self.text[slice(*span)]}` {reason}", span)
        quoted = names[0].token_type is TokenType.IDENTIFIER
        side = _SIDES.get(names[0].text if quoted else names[0].text.lower())
        if side is None:
            written = self.text[slice(*_span(names[0]))]
            self.fail(
                f"`{written}` is no side: the two tables are called r and s, so write r.x or s.x",
                _span(names[0]),
            )
        return Column(side, name.text, span)

    def literal(self, node: exp.Expr, depth: int) -> Expression:
        """A number."""
        if self.kind() not in (TokenType.NUMBER, TokenType.DOT):
            self.refuse(node, depth)
        value, span = self.number()
        written = self.text[slice(*span)]
        return Number(value, any(mark in written for mark in ".eE"), span)

    def number(self) -> tuple[Fraction, Span]:
        """The exact value of the next token (sqlglot splits `.5` into two)."""
        start = self.at
        if self.kind() is TokenType.DOT:
            self.at += 1
        self.take(TokenType.NUMBER)
        span = self.since(start)
        return self.exact(self.text[slice(*span)], span), span

    def exact(self, written: str, span: Span) -> Fraction:
        """The exact value of a number's text, bounded in length and exponent."""
        match = _NUMBER.fullmatch(written)
        if match is None:
            self.fail(f"`{written}` is not a number: write one such as 1000, 1.5, .5 or 1e3", span)
        if len(written) > MAX_NUMBER or abs(int(match[1] or 0)) > MAX_NUMBER:
            reason = f"the number has more than {MAX_NUMBER} characters, or an exponent beyond {MAX_NUMBER}"
            self.fail(f"{reason}: write it shorter", span)
        return Fraction(written)

    def instant(self, node: exp.Expr, depth: int) -> Expression:
        """`TIMESTAMP '…'`, `DATE '…'` or `CAST('…' AS …)` of these."""
        start = self.at
        name = self.word()
        if name in ("TIMESTAMP", "DATE") and self.kind(1) is TokenType.STRING:
            self.at += 1
            literal = self.take()
        elif name == "CAST":
            if self.kind(2) is not TokenType.STRING or self.kind(3) is not TokenType.ALIAS:
                self.fail(_CAST, self.call())
            literal, name = self.tokens[self.at + 2], self.word(4)
            if name not in ("TIMESTAMP", "DATE") or self.kind(5) is not TokenType.R_PAREN:
                self.fail(_CAST, self.call())
            self.at += 6
        elif isinstance(node.this, exp.Literal) and self.kind() not in (
            TokenType.STRING,
            TokenType.NUMBER,
            TokenType.DOT,
        ):
            reason = "of the typed literals only TIMESTAMP '…' and DATE '…' are allowed: write one of them"
            self.fail(f"{reason}, with an offset in the text if it is zoned (TIMESTAMP '… +02:00')", self.here())
        else:
            self.refuse(node, depth)
        ns, zoned = self.moment(name, literal)
        return Instant(ns, zoned, self.since(start))

    def moment(self, name: str, literal: Token) -> tuple[int, bool]:
        """Nanoseconds since 1970, and whether the text has an offset."""
        match = _TIME.fullmatch(literal.text.strip())
        usage = (
            "'YYYY-MM-DD'" if name == "DATE" else "'YYYY-MM-DD hh:mm:ss.fffffffff+hh:mm' (time and offset as needed)"
        )
        if match is None or (name == "DATE" and match[4]):
            self.fail(f"'{literal.text}' is no {name} that can be read: write it as {usage}", _span(literal))
        year, month, day, hour, minute, second, fraction, zulu, sign, east_hours, east_minutes = match.groups()
        try:
            days = date(int(year), int(month), int(day)).toordinal() - date(1970, 1, 1).toordinal()
        except ValueError:
            self.fail(f"'{literal.text}' is not in the calendar: write an existing day as {usage}", _span(literal))
        clock, east = (
            (int(hour or 0), int(minute or 0), int(second or 0)),
            (int(east_hours or 0), int(east_minutes or 0)),
        )
        if clock > (23, 59, 59) or max(clock[1:]) > 59 or east > (23, 59) or east[1] > 59:
            reason = "has a time or an offset out of range: hours go to 23, minutes and seconds to 59"
            self.fail(f"'{literal.text}' {reason}", _span(literal))
        if len(digits := (fraction or "").rstrip("0")) > 9:
            self.fail(
                f"'{literal.text}' is finer than a nanosecond: write at most 9 digits of a second",
                _span(literal),
            )
        seconds = days * 86400 + clock[0] * 3600 + clock[1] * 60 + clock[2]
        seconds -= (east[0] * 3600 + east[1] * 60) * (-1 if sign == "-" else 1)
        return seconds * _SECOND + int(digits.ljust(9, "0")), bool(zulu or sign)

    def duration(self, node: exp.Expr, depth: int) -> Expression:
        """`INTERVAL '5' MINUTE`, `INTERVAL '5 minutes'` or `INTERVAL 5 MINUTE`, read from the tokens."""
        start = self.at
        if self.kind() is not TokenType.INTERVAL:
            reason = "after an INTERVAL is read as part of it: write INTERVAL again, or use parentheses"
            self.fail(f"`{self.text[slice(*self.here())]}` {reason}", self.here())
        self.at += 1
        if self.kind() is TokenType.STRING:
            ns = self.quoted_quantity(node)
        elif type(node.this) is exp.Literal:
            minus = 0
            while self.kind() in (TokenType.PLUS, TokenType.DASH):
                minus += self.take().token_type is TokenType.DASH
            quantity, span = self.number()
            ns = (-quantity if minus % 2 else quantity) * self.unit_after(node, span)
        else:
            reason = "an INTERVAL takes one number: write INTERVAL '10' MINUTE or 2 * INTERVAL '5' MINUTE"
            self.fail(reason, self.here())
        if ns.denominator != 1:
            self.fail("the INTERVAL is no whole number of nanoseconds: round it", self.since(start))
        return Duration(int(ns), self.since(start))

    def quoted_quantity(self, node: exp.Expr) -> Fraction:
        """The nanoseconds of `'5'` with a unit after it, or of `'5 minutes'` or `'1 day 2 hours'`."""
        literal = self.take()
        total, at = Fraction(0), 0
        while at < len(literal.text) or not at:
            match = _QUANTITY.match(literal.text, at)
            if match is None:
                reason = "cannot be read: write INTERVAL '5' MINUTE or INTERVAL '1 day 2 hours'"
                self.fail(f"INTERVAL '{literal.text}' {reason}", _span(literal))
            value = self.exact(match[2], _span(literal))
            if match[4]:
                inner = literal.start + 1
                unit = self.unit(match[4], (inner + match.start(4), inner + match.end(4)))
            elif match.span() == (0, len(literal.text)):
                unit = self.unit_after(node, _span(literal))
            else:
                self.fail(
                    f"`{match[2]}` in INTERVAL '{literal.text}' has no unit: write one after it",
                    _span(literal),
                )
            if match[1] and match.span() != (0, len(literal.text)):
                reason = "has a sign before one of several quantities: write the sign before INTERVAL"
                self.fail(f"INTERVAL '{literal.text}' {reason}", _span(literal))
            total += (-value if match[1] == "-" else value) * unit
            at = match.end()
        return total

    def unit_after(self, node: exp.Expr, quantity: Span) -> int:
        """The nanoseconds of the unit that is the next token."""
        if node.args.get("unit") is None or not self.word().isalpha():
            self.fail("the INTERVAL has no unit: write one, as in INTERVAL '5' MINUTE", quantity)
        token = self.take()
        return self.unit(token.text, _span(token))

    def unit(self, written: str, span: Span) -> int:
        """The nanoseconds of a unit's name."""
        name = written.lower()
        if name in _CALENDAR_UNITS:
            self.fail(f"{written} has no fixed length: use NANOSECOND to WEEK, such as INTERVAL '30' DAY", span)
        if name == "m":
            self.fail("`m` could be minute or month: write MINUTE", span)
        if name not in _NANOSECONDS:
            self.fail(f"`{written}` is no unit of an INTERVAL: write {_UNIT_LIST}", span)
        return _NANOSECONDS[name]

    # refusals

    def call(self) -> Span:
        """From the next token to the parenthesis that closes the first one opened."""
        depth = 0
        for token in self.tokens[self.at :]:
            depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
            if token.token_type is TokenType.R_PAREN and depth <= 0:
                return _span(self.tokens[self.at], token)
        return self.here()

    def refuse(self, node: exp.Expr, depth: int) -> NoReturn:
        """Say why this kind of node is not allowed, at the leftmost place that shows it."""
        kind, word = self.kind(), self.word()
        if kind is None:
            self.misfit()
        if kind in _PREFIX_REASONS:
            self.fail(_PREFIX_REASONS[kind], self.here())
        if self.kind(1) is TokenType.L_PAREN and word.isidentifier() and word not in ("ABS", "CAST", "INTERVAL"):
            hint = f"write {word} '…'" if word in ("DATE", "TIMESTAMP") else "compute the column before the join"
            name = self.text[slice(*self.here())]
            self.fail(f"the function {name} is not allowed, only abs is: {hint}", self.call())
        if kind is TokenType.L_PAREN and self.word(1) in ("SELECT", "WITH", "VALUES", "FROM"):
            self.fail("a subquery is not allowed: join with its result instead", self.call())
        if type(node) is exp.Tuple:
            self.fail("a list is not allowed: compare one value at a time", self.call())
        while type(node.args.get("this")) is type(node):
            node = node.this
        operand = node.args.get("this")
        if not isinstance(operand, exp.Expression):
            self.misfit()
        if isinstance(operand, exp.Predicate | exp.Connector | exp.Not):
            self.conjunction(operand)
        else:
            self.expression(operand, min(depth, MAX_DEPTH))
        self.refuse_infix(node)

    def refuse_infix(self, node: exp.Expr) -> NoReturn:
        """The operator after a left operand that was fine."""
        if type(node) in _COMPARISONS and self.word() in _COMPARE:
            self.chained()
        if isinstance(node, exp.Connector) or type(node) is exp.Between:
            self.fail(f"{self.word()} gives no value to compare or compute with: {_ALLOWED}", self.here())
        if type(node) in (exp.BitwiseLeftShift, exp.BitwiseRightShift):
            self.fail(_BITWISE, self.here())
        self.misfit()


_RULES: dict[type[exp.Expr], _Rule] = {
    exp.Add: _Reader.arithmetic,
    exp.Sub: _Reader.arithmetic,
    exp.Mul: _Reader.arithmetic,
    exp.Paren: _Reader.parentheses,
    exp.Neg: _Reader.negate,
    exp.Abs: _Reader.absolute,
    exp.Column: _Reader.column,
    exp.Literal: _Reader.literal,
    exp.Cast: _Reader.instant,
    exp.Interval: _Reader.duration,
}


def _chain(node: exp.Expr, kinds: tuple[type[exp.Expr], ...]) -> tuple[exp.Expr, list[exp.Expr]]:
    """A tree that leans to the left: its leftmost operand, then the nodes of `kinds` from the inside out."""
    links: list[exp.Expr] = []
    while type(node) in kinds:
        links.append(node)
        node = node.this
    return node, links[::-1]


def _bare_reason(written: str) -> str:
    if written.lower() in _SIDES:
        return f"`{written}` is a table, not a column: write one of its columns, such as {written}.x"
    return f"`{written}` does not say which table it is of: write r.{written} or s.{written}"


# --- after the walk: what the whole condition must say ----------------------------------------------------


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
