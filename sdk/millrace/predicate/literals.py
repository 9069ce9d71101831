"""Reads numbers, constants (text, binary, booleans), instants and intervals exactly, from the text of their tokens."""

from __future__ import annotations

import re
from datetime import date
from fractions import Fraction

from sqlglot import Token, TokenType, exp

from millrace.host.expr.condition import Constant, Duration, Instant, Number, Span
from millrace.predicate.cursor import Cursor
from millrace.predicate.error_texts import CAST, not_a_number
from millrace.predicate.time_units import NANOSECONDS, SECOND, UNIT_NAMES
from millrace.predicate.tokens import span_of

MAX_NUMBER = 400

_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]+))?")
_QUANTITY = re.compile(rf"\s*([+-]?)\s*({_NUMBER.pattern})\s*([^\W\d_]*)\s*")
_BYTES = re.compile(r"(?:[0-9a-fA-F]{2})*")
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[ Tt](\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?(?: ?(?:([Zz])|([+-])(\d\d)(?::?(\d\d))?))?)?",
    re.ASCII,
)
_USAGE = {
    "DATE": "'YYYY-MM-DD'",
    "TIMESTAMP": "'YYYY-MM-DD hh:mm:ss.fffffffff+hh:mm' (time and offset as needed)",
}
_CALENDAR = "mon mons month months q quarter quarters y yr yrs year years decade decades century centuries"
_CALENDAR_UNITS = frozenset(_CALENDAR.split())
_UNIT_LIST = f"{', '.join(name.upper() for name in UNIT_NAMES[:-1])} or {UNIT_NAMES[-1].upper()}"


# --- numbers ----------------------------------------------------------------------------------------------


def read_number(cursor: Cursor) -> Number | None:
    """Read a number; return None if the next token does not begin one."""
    if cursor.kind() not in (TokenType.NUMBER, TokenType.DOT):
        return None
    value, span = _amount(cursor)
    return Number(value, any(mark in cursor.text_of(span) for mark in ".eE"), span)


def _amount(cursor: Cursor) -> tuple[Fraction, Span]:
    """Read the next number and return its exact value (sqlglot splits `.5` into two tokens)."""
    start = cursor.at
    if cursor.kind() is TokenType.DOT:
        cursor.at += 1
    cursor.take(TokenType.NUMBER)
    span = cursor.span_since(start)
    return _exact(cursor, cursor.text_of(span), span), span


def _exact(cursor: Cursor, written: str, span: Span) -> Fraction:
    """Return the exact value of a number's text, bounded in length and exponent."""
    match = _NUMBER.fullmatch(written)
    if match is None:
        cursor.fail(not_a_number(written), span)
    if len(written) > MAX_NUMBER or abs(int(match[1] or 0)) > MAX_NUMBER:
        reason = f"the number has more than {MAX_NUMBER} characters, or an exponent beyond {MAX_NUMBER}"
        cursor.fail(f"{reason}: write it shorter", span)
    return Fraction(written)


# --- constants --------------------------------------------------------------------------------------------


def read_constant(cursor: Cursor) -> Constant | None:
    """Read `'text'`, `X'0aff'`, `TRUE` or `FALSE`; return None if the next token is not one of them."""
    kind = cursor.kind()
    if kind not in (TokenType.STRING, TokenType.HEX_STRING, TokenType.TRUE, TokenType.FALSE):
        return None
    token = cursor.take()
    span = span_of(token)
    if kind is TokenType.STRING:
        if any("\ud800" <= char <= "\udfff" for char in token.text):
            cursor.fail("the text literal is not valid Unicode (it has a lone surrogate): remove that character", span)
        return Constant(token.text, span)
    if kind is TokenType.HEX_STRING:
        if not _BYTES.fullmatch(token.text):
            cursor.fail(f"{cursor.text_of(span)} is not binary: write two hexadecimal digits per byte, X'0aff'", span)
        return Constant(bytes.fromhex(token.text), span)
    return Constant(kind is TokenType.TRUE, span)


# --- instants ---------------------------------------------------------------------------------------------


def read_instant(cursor: Cursor, node: exp.Expr) -> Instant | None:
    """Read `TIMESTAMP '…'`, `DATE '…'` or `CAST('…' AS …)`; return None for a cast of something else."""
    start = cursor.at
    name = cursor.word()
    if name in _USAGE and cursor.kind(1) is TokenType.STRING:
        cursor.at += 1
        literal = cursor.take()
    elif name == "CAST":
        if cursor.kind(2) is not TokenType.STRING or cursor.kind(3) is not TokenType.ALIAS:
            cursor.fail(CAST, cursor.call_span())
        literal, name = cursor.tokens[cursor.at + 2], cursor.word(4)
        if name not in _USAGE or cursor.kind(5) is not TokenType.R_PAREN:
            cursor.fail(CAST, cursor.call_span())
        cursor.at += 6
    else:
        untyped = cursor.kind() in (TokenType.STRING, TokenType.NUMBER, TokenType.DOT)
        if untyped or not isinstance(node.this, exp.Literal):
            return None
        reason = "of the typed literals only TIMESTAMP '…' and DATE '…' are allowed: write one of them"
        cursor.fail(f"{reason}, with an offset in the text if it is zoned (TIMESTAMP '… +02:00')", cursor.next_span())
    ns, zoned = _parse_instant(cursor, name, literal)
    return Instant(ns, zoned, cursor.span_since(start))


def _parse_instant(cursor: Cursor, name: str, literal: Token) -> tuple[int, bool]:
    """Return the nanoseconds since 1970, and whether the text has a UTC offset."""
    written, span, usage = f"'{literal.text}'", span_of(literal), _USAGE[name]
    match = _TIME.fullmatch(literal.text.strip())
    if match is None or (name == "DATE" and match[4]):
        cursor.fail(f"{written} is not a valid {name}: write it as {usage}", span)
    year, month, day, hour, minute, second, fraction, zulu, sign, east_hours, east_minutes = match.groups()
    try:
        days = date(int(year), int(month), int(day)).toordinal() - date(1970, 1, 1).toordinal()
    except ValueError:
        cursor.fail(f"{written} is not in the calendar: write an existing day as {usage}", span)
    clock = (int(hour or 0), int(minute or 0), int(second or 0))
    east = (int(east_hours or 0), int(east_minutes or 0))
    if clock > (23, 59, 59) or max(clock[1:]) > 59 or east > (23, 59) or east[1] > 59:
        reason = "has a time or an offset out of range: hours go to 23, minutes and seconds to 59"
        cursor.fail(f"{written} {reason}", span)
    if len(digits := (fraction or "").rstrip("0")) > 9:
        cursor.fail(f"{written} is finer than a nanosecond: write at most 9 digits of a second", span)
    seconds = days * 86400 + clock[0] * 3600 + clock[1] * 60 + clock[2]
    seconds -= (east[0] * 3600 + east[1] * 60) * (-1 if sign == "-" else 1)
    return seconds * SECOND + int(digits.ljust(9, "0")), bool(zulu or sign)


# --- intervals --------------------------------------------------------------------------------------------


def read_duration(cursor: Cursor, node: exp.Expr) -> Duration:
    """Read `INTERVAL '5' MINUTE`, `INTERVAL '5 minutes'` or `INTERVAL 5 MINUTE` from the tokens."""
    start = cursor.at
    if cursor.kind() is not TokenType.INTERVAL:
        reason = "after an INTERVAL is read as part of it: write INTERVAL again, or use parentheses"
        cursor.fail(f"`{cursor.text_of(cursor.next_span())}` {reason}", cursor.next_span())
    cursor.at += 1
    if cursor.kind() is TokenType.STRING:
        ns = _quoted_quantity(cursor, node)
    elif type(node.this) is exp.Literal:
        minus = 0
        while cursor.kind() in (TokenType.PLUS, TokenType.DASH):
            minus += cursor.take().token_type is TokenType.DASH
        quantity, span = _amount(cursor)
        ns = (-quantity if minus % 2 else quantity) * _unit_after(cursor, node, span)
    else:
        reason = "an INTERVAL takes one number: write INTERVAL '10' MINUTE"
        cursor.fail(reason, cursor.next_span())
    if ns.denominator != 1:
        cursor.fail("the INTERVAL is not a whole number of nanoseconds: round it", cursor.span_since(start))
    return Duration(int(ns), cursor.span_since(start))


def _quoted_quantity(cursor: Cursor, node: exp.Expr) -> Fraction:
    """Return the nanoseconds of `'5'` with a unit after it, or of `'5 minutes'` or `'1 day 2 hours'`."""
    literal = cursor.take()
    written, span = f"INTERVAL '{literal.text}'", span_of(literal)
    total, at = Fraction(0), 0
    while at < len(literal.text) or not at:
        match = _QUANTITY.match(literal.text, at)
        if match is None:
            cursor.fail(f"{written} cannot be read: write INTERVAL '5' MINUTE or INTERVAL '1 day 2 hours'", span)
        alone = match.span() == (0, len(literal.text))
        value = _exact(cursor, match[2], span)
        if match[4]:
            inner = literal.start + 1
            unit = _unit(cursor, match[4], (inner + match.start(4), inner + match.end(4)))
        elif alone:
            unit = _unit_after(cursor, node, span)
        else:
            cursor.fail(f"`{match[2]}` in {written} has no unit: write one after it", span)
        if match[1] and not alone:
            reason = "has a sign before one of several quantities: write the sign before INTERVAL"
            cursor.fail(f"{written} {reason}", span)
        total += (-value if match[1] == "-" else value) * unit
        at = match.end()
    return total


def _unit_after(cursor: Cursor, node: exp.Expr, quantity: Span) -> int:
    """Read a unit and return its nanoseconds."""
    if node.args.get("unit") is None or not cursor.word().isalpha():
        cursor.fail("the INTERVAL has no unit: write one, as in INTERVAL '5' MINUTE", quantity)
    token = cursor.take()
    return _unit(cursor, token.text, span_of(token))


def _unit(cursor: Cursor, written: str, span: Span) -> int:
    """Return the nanoseconds of a unit's name."""
    name = written.lower()
    if name in _CALENDAR_UNITS:
        cursor.fail(f"{written} has no fixed length: use NANOSECOND to WEEK, such as INTERVAL '30' DAY", span)
    if name == "m":
        cursor.fail("`m` could be minute or month: write MINUTE", span)
    if name not in NANOSECONDS:
        cursor.fail(f"`{written}` is not a unit of an INTERVAL: write {_UNIT_LIST}", span)
    return NANOSECONDS[name]
