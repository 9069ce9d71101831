"""Walks sqlglot's tree in the order of the text and converts it; every node consumes exactly its own tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NoReturn, TypeVar

from sqlglot import TokenType, exp

from millrace.host.expr.condition import (
    Absolute,
    Arithmetic,
    Comparison,
    Constant,
    Duration,
    Expression,
    Negate,
    Number,
)
from millrace.predicate.columns import read_column
from millrace.predicate.cursor import Cursor
from millrace.predicate.error_texts import ALLOWED, BITWISE, CONSTANT_REASONS, PREFIX_REASONS
from millrace.predicate.literals import read_constant, read_duration, read_instant, read_number
from millrace.predicate.tokens import COMPARE

MAX_DEPTH = 200

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_OPERATORS: dict[type[exp.Expr], tuple[TokenType, Literal["+", "-", "*"]]] = {
    exp.Add: (TokenType.PLUS, "+"),
    exp.Sub: (TokenType.DASH, "-"),
    exp.Mul: (TokenType.STAR, "*"),
}

Band = list[Comparison]
T = TypeVar("T")


def read(cursor: Cursor, tree: exp.Expr) -> list[Band]:
    """Read the full text: one conjunction, or an OR of conjunctions."""
    bands = _disjunction(cursor, tree)
    if cursor.kind() is not None:
        cursor.fail_unexpected()
    return bands


def _chain(node: exp.Expr, kinds: tuple[type[exp.Expr], ...]) -> tuple[exp.Expr, list[exp.Expr]]:
    """Split a left-leaning tree: return its leftmost operand, then the nodes of `kinds` from the inside out."""
    links: list[exp.Expr] = []
    while type(node) in kinds:
        links.append(node)
        node = node.this
    return node, links[::-1]


# --- terms ------------------------------------------------------------------------------------------------


def _disjunction(cursor: Cursor, node: exp.Expr) -> list[Band]:
    """Read an OR at the top, in any parentheses."""
    return _joined(cursor, node, exp.Or, TokenType.OR, lambda at, part: [_conjunction(at, part)])


def _conjunction(cursor: Cursor, node: exp.Expr) -> Band:
    """Read the comparisons of an AND, in any parentheses."""
    return _joined(cursor, node, exp.And, TokenType.AND, _term)


def _joined(
    cursor: Cursor,
    node: exp.Expr,
    kind: type[exp.Expr],
    word: TokenType,
    read_part: Callable[[Cursor, exp.Expr], list[T]],
) -> list[T]:
    """Read the parts of a chain of ANDs or ORs, in the order of the text."""
    if type(node) is exp.Paren:
        cursor.take(TokenType.L_PAREN)
        found = _joined(cursor, node.this, kind, word, read_part)
        cursor.take(TokenType.R_PAREN)
        return found
    leftmost, links = _chain(node, (kind,))
    if not links:
        return read_part(cursor, node)
    found = _joined(cursor, leftmost, kind, word, read_part)
    for link in links:
        cursor.take(word)
        found += _joined(cursor, link.args["expression"], kind, word, read_part)
    return found


def _term(cursor: Cursor, node: exp.Expr) -> Band:
    """Read one comparison (two for a BETWEEN)."""
    if type(node) is exp.Or:
        _conjunction(cursor, _chain(node, (exp.Or,))[0])
        reason = "is not allowed below an AND, it combines complete bands: write a AND (b OR c) as a AND b OR a AND c"
        cursor.fail(f"OR {reason}", cursor.next_span())
    if type(node) in _COMPARISONS:
        return [_comparison(cursor, node)]
    if type(node) is exp.Between:
        return _between(cursor, node)
    if type(node) not in _RULES:
        _refuse(cursor, node, 0)
    span = _expression(cursor, node, 0).span
    cursor.fail(f"`{cursor.text_of(span)}` is not a comparison: compare it with something, as in r.x < s.x", span)


def _comparison(cursor: Cursor, node: exp.Expr) -> Comparison:
    """Read `left op right`."""
    start = cursor.at
    if type(node.this) in _COMPARISONS:
        _comparison(cursor, _chain(node, _COMPARISONS)[1][0])
        _refuse_chained(cursor)
    left = _expression(cursor, node.this, 1)
    written = cursor.word()
    if written not in COMPARE:
        cursor.fail_unexpected()
    cursor.take()
    right = _expression(cursor, node.args["expression"], 1)
    if COMPARE[written] not in ("=", "<>"):
        _refuse_constants(cursor, left, right)
    return Comparison(COMPARE[written], left, right, cursor.span_since(start))


def _between(cursor: Cursor, node: exp.Expr) -> Band:
    """Read `x BETWEEN low AND high` as two comparisons."""
    start = cursor.at
    value = _expression(cursor, node.this, 1)
    cursor.take(TokenType.BETWEEN)
    low = _expression(cursor, node.args["low"], 1)
    cursor.take(TokenType.AND)
    high = _expression(cursor, node.args["high"], 1)
    span = cursor.span_since(start)
    _refuse_constants(cursor, value, low, high)
    return [Comparison(">=", value, low, span), Comparison("<=", value, high, span)]


# --- operands ---------------------------------------------------------------------------------------------


def _expression(cursor: Cursor, node: exp.Expr, depth: int) -> Expression:
    """Read one operand; `depth` is its level in the tree of the comparison."""
    if depth > MAX_DEPTH:
        reason = f"the expression has more than {MAX_DEPTH} levels: shorten it, or group it with parentheses"
        cursor.fail(reason, cursor.next_span())
    signed = cursor.kind() is TokenType.PLUS
    while cursor.kind() is TokenType.PLUS:
        cursor.at += 1
    rule = _RULES.get(type(node))
    found = rule(cursor, node, depth) if rule else None
    if found is None:
        _refuse(cursor, node, depth)
    if signed:
        _refuse_constants(cursor, found)
    return found


def _constant(cursor: Cursor, node: exp.Expr, depth: int) -> Constant | None:
    """Read a constant; `depth` 1 is a side of a comparison, and it is not allowed elsewhere."""
    return read_constant(cursor) if depth == 1 else None


def _arithmetic(cursor: Cursor, node: exp.Expr, depth: int) -> Expression:
    """Read a chain of `+ - *`, iteratively: sqlglot's tree leans to the left."""
    start = cursor.at
    leftmost, links = _chain(node, tuple(_OPERATORS))
    found = _expression(cursor, leftmost, depth + len(links))
    for i, link in enumerate(links):
        kind, op = _OPERATORS[type(link)]
        cursor.take(kind)
        right = _expression(cursor, link.args["expression"], depth + len(links) - i)
        found = Arithmetic(op, found, right, cursor.span_since(start))
    return found


def _parentheses(cursor: Cursor, node: exp.Expr, depth: int) -> Expression:
    """Read `( … )`."""
    start = cursor.at
    cursor.take(TokenType.L_PAREN)
    inner = _expression(cursor, node.this, depth)
    cursor.take(TokenType.R_PAREN)
    return replace(inner, span=cursor.span_since(start)) if isinstance(inner, Arithmetic | Negate) else inner


def _negate(cursor: Cursor, node: exp.Expr, depth: int) -> Expression:
    """Read `-x`; fold the minus into a literal."""
    start = cursor.at
    cursor.take(TokenType.DASH)
    inner = _expression(cursor, node.this, depth + 1)
    span = cursor.span_since(start)
    if isinstance(inner, Number):
        return replace(inner, value=-inner.value, span=span)
    if isinstance(inner, Duration):
        return replace(inner, ns=-inner.ns, span=span)
    return Negate(inner, span)


def _absolute(cursor: Cursor, node: exp.Expr, depth: int) -> Expression:
    """Read `abs(x)`."""
    start = cursor.at
    if cursor.word() != "ABS":
        cursor.fail_unexpected()
    cursor.take()
    cursor.take(TokenType.L_PAREN)
    inner = _expression(cursor, node.this, depth + 1)
    cursor.take(TokenType.R_PAREN)
    return Absolute(inner, cursor.span_since(start))


# A rule returns None if a node of its kind is written in a form that a condition does not allow.
_Rule = Callable[[Cursor, exp.Expr, int], Expression | None]
_RULES: dict[type[exp.Expr], _Rule] = {
    exp.Add: _arithmetic,
    exp.Sub: _arithmetic,
    exp.Mul: _arithmetic,
    exp.Paren: _parentheses,
    exp.Neg: _negate,
    exp.Abs: _absolute,
    exp.Column: lambda cursor, node, depth: read_column(cursor, node),
    exp.Literal: lambda cursor, node, depth: read_number(cursor) or _constant(cursor, node, depth),
    exp.HexString: _constant,
    exp.Boolean: _constant,
    exp.Cast: lambda cursor, node, depth: read_instant(cursor, node),
    exp.Interval: lambda cursor, node, depth: read_duration(cursor, node),
}


# --- errors -----------------------------------------------------------------------------------------------


def _refuse(cursor: Cursor, node: exp.Expr, depth: int) -> NoReturn:
    """Raise an error that says why this kind of node is not allowed, at the leftmost token that shows it."""
    kind, word = cursor.kind(), cursor.word()
    if kind is None:
        cursor.fail_unexpected()
    if kind in PREFIX_REASONS:
        cursor.fail(PREFIX_REASONS[kind], cursor.next_span())
    if cursor.kind(1) is TokenType.L_PAREN and word.isidentifier() and word not in ("ABS", "CAST", "INTERVAL"):
        hint = f"write {word} '…'" if word in ("DATE", "TIMESTAMP") else "compute the column before the join"
        name = cursor.text_of(cursor.next_span())
        cursor.fail(f"the function {name} is not allowed, only abs is: {hint}", cursor.call_span())
    if kind is TokenType.L_PAREN and cursor.word(1) in ("SELECT", "WITH", "VALUES", "FROM"):
        cursor.fail("a subquery is not allowed: join with its result instead", cursor.call_span())
    if type(node) is exp.Tuple:
        cursor.fail("a list is not allowed: compare one value at a time", cursor.call_span())
    while type(node.args.get("this")) is type(node):
        node = node.this
    operand = node.args.get("this")
    if not isinstance(operand, exp.Expression):
        cursor.fail_unexpected()
    if isinstance(operand, exp.Predicate | exp.Connector | exp.Not):
        _conjunction(cursor, operand)
    else:
        _expression(cursor, operand, min(depth, MAX_DEPTH))
    _refuse_infix(cursor, node)


def _refuse_constants(cursor: Cursor, *operands: Expression) -> None:
    """Raise an error at the first operand that is a constant."""
    for operand in operands:
        if isinstance(operand, Constant):
            cursor.fail(CONSTANT_REASONS[type(operand.value)], operand.span)


def _refuse_infix(cursor: Cursor, node: exp.Expr) -> NoReturn:
    """Raise an error for the operator after a valid left operand."""
    if type(node) in _COMPARISONS and cursor.word() in COMPARE:
        _refuse_chained(cursor)
    if isinstance(node, exp.Connector) or type(node) is exp.Between:
        cursor.fail(f"{cursor.word()} gives no value to compare or compute with: {ALLOWED}", cursor.next_span())
    if type(node) in (exp.BitwiseLeftShift, exp.BitwiseRightShift):
        cursor.fail(BITWISE, cursor.next_span())
    cursor.fail_unexpected()


def _refuse_chained(cursor: Cursor) -> NoReturn:
    """Raise an error because a comparison is an operand of another one."""
    reason = "a comparison cannot be an operand: write a < b AND b < c for a < b < c"
    cursor.fail(reason, cursor.next_span())
