"""`millrace.predicate.parse`: the trees of valid texts, and the errors and spans of invalid ones."""

from __future__ import annotations

import inspect
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millrace.host.base.errors import ArgumentError, PredicateError
from millrace.host.base.types import Side
from millrace.host.expr.condition import (
    Absolute,
    Arithmetic,
    Column,
    Comparison,
    Condition,
    Constant,
    Expression,
    Instant,
    Negate,
    Number,
)
from millrace.predicate import MAX_DEPTH, MAX_NESTING, MAX_NUMBER, MAX_TEXT, parse
from tests.sdk.predicate.trees import ANY, MINUTE, bare, cmp, d, n, op, r, s


def terms(text: str) -> tuple[Comparison, ...]:
    """The terms of a text that is one conjunction, without spans."""
    (band,) = parse(text).bands
    return tuple(bare(term) for term in band)


def left_of(text: str) -> Expression:
    """The left operand of the first term, without its spans."""
    return terms(text)[0].left


ACCEPTED: dict[str, tuple[Comparison, ...]] = {
    "r.power < s.power AND r.cool > s.cool": (
        cmp(r("power"), "<", s("power")),
        cmp(r("cool"), ">", s("cool")),
    ),
    "abs(r.x - s.x) <= 5": (cmp(Absolute(op(r("x"), "-", s("x")), ANY), "<=", n("5")),),
    "ABS ( R.x-S.x )<=5": (cmp(Absolute(op(r("x"), "-", s("x")), ANY), "<=", n("5")),),
    "s.x BETWEEN r.lo AND r.hi": (cmp(s("x"), ">=", r("lo")), cmp(s("x"), "<=", r("hi"))),
    "s.x between r.x - 1 and r.x + 1 and r.k = s.k": (
        cmp(s("x"), ">=", op(r("x"), "-", n("1"))),
        cmp(s("x"), "<=", op(r("x"), "+", n("1"))),
        cmp(r("k"), "=", s("k")),
    ),
    "r.a = s.a": (cmp(r("a"), "=", s("a")),),
    "r.a <> s.a": (cmp(r("a"), "<>", s("a")),),
    "r.a != s.a": (cmp(r("a"), "<>", s("a")),),
    "r.a >= s.a": (cmp(r("a"), ">=", s("a")),),
    "((r.a < s.a) AND ((r.b < (s.b)) AND (r.c > 5)))": (
        cmp(r("a"), "<", s("a")),
        cmp(r("b"), "<", s("b")),
        cmp(r("c"), ">", n("5")),
    ),
    "r.a\n<\ts.a": (cmp(r("a"), "<", s("a")),),
    "r.t - s.t <= INTERVAL '5' MINUTE": (cmp(op(r("t"), "-", s("t")), "<=", d(5 * MINUTE)),),
    "s.t > r.t + INTERVAL '1' HOUR - INTERVAL 2 SECOND": (
        cmp(s("t"), ">", op(op(r("t"), "+", d(60 * MINUTE)), "-", d(2 * 10**9))),
    ),
    "r.a < s.a AND r.t >= TIMESTAMP '1970-01-01 00:00:01'": (
        cmp(r("a"), "<", s("a")),
        cmp(r("t"), ">=", Instant(10**9, False, ANY)),
    ),
    "r.a = s.a AND r.site = 'it''s' AND '' <> s.site": (
        cmp(r("a"), "=", s("a")),
        cmp(r("site"), "=", Constant("it's", ANY)),
        cmp(Constant("", ANY), "<>", s("site")),
    ),
    "r.a = s.a AND r.b = X'0aFf' AND s.b != x'' AND (TRUE) = r.c AND s.c <> (false)": (
        cmp(r("a"), "=", s("a")),
        cmp(r("b"), "=", Constant(b"\x0a\xff", ANY)),
        cmp(s("b"), "<>", Constant(b"", ANY)),
        cmp(Constant(True, ANY), "=", r("c")),
        cmp(s("c"), "<>", Constant(False, ANY)),
    ),
}


@pytest.mark.parametrize("text", ACCEPTED)
def test_accepted(text: str) -> None:
    assert terms(text) == ACCEPTED[text]
    assert parse(text).text == text


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("r.x + 2 * r.y - 3", op(op(r("x"), "+", op(n("2"), "*", r("y"))), "-", n("3"))),
        ("r.x - (r.y - r.z)", op(r("x"), "-", op(r("y"), "-", r("z")))),
        ("r.x - r.y - r.z", op(op(r("x"), "-", r("y")), "-", r("z"))),
        ("(r.x + 2) * r.y", op(op(r("x"), "+", n("2")), "*", r("y"))),
        ("-r.x * 2", op(Negate(r("x"), ANY), "*", n("2"))),
        ("-(r.x * 2)", Negate(op(r("x"), "*", n("2")), ANY)),
        ("- -r.x", Negate(Negate(r("x"), ANY), ANY)),
        ("+r.x", r("x")),
        ("+ + (r.x)", r("x")),
        ("- + r.x", Negate(r("x"), ANY)),
        ("r.x - -5", op(r("x"), "-", n("-5"))),
        ("r.x * -(5)", op(r("x"), "*", n("-5"))),
        ("r.x + - (+ -5)", op(r("x"), "+", n("5"))),
        ("r.x - -INTERVAL '5' MINUTE", op(r("x"), "-", d(-5 * MINUTE))),
        ("2 * INTERVAL '5' MINUTE + r.x", op(op(n("2"), "*", d(5 * MINUTE)), "+", r("x"))),
        ("abs(-abs(r.x))", Absolute(Negate(Absolute(r("x"), ANY), ANY), ANY)),
        ("-TIMESTAMP '1970-01-01' + r.x", op(Negate(Instant(0, False, ANY), ANY), "+", r("x"))),
    ],
)
def test_operands(written: str, expected: Expression) -> None:
    assert left_of(f"{written} < s.x") == expected
    assert terms(f"s.x < {written}")[0].right == expected


@pytest.mark.parametrize(
    ("written", "value", "decimal"),
    [
        ("12", Fraction(12), False),
        ("007", Fraction(7), False),
        ("1.5", Fraction(3, 2), True),
        ("0.1", Fraction(1, 10), True),
        (".5", Fraction(1, 2), True),
        ("1.", Fraction(1), True),
        ("1e3", Fraction(1000), True),
        ("1E-3", Fraction(1, 1000), True),
        (".5e+1", Fraction(5), True),
        ("-.5", Fraction(-1, 2), True),
        ("123456789012345678901234567890", Fraction(123456789012345678901234567890), False),
        ("0." + "1" * 300, Fraction("0." + "1" * 300), True),
    ],
)
def test_numbers_are_exact(written: str, value: Fraction, decimal: bool) -> None:
    assert terms(f"r.x < s.x + {written}")[0].right == op(s("x"), "+", Number(value, decimal, ANY))


# Words of SQL: after a dot they are names.
KEYWORDS = """date time interval timestamp end order Year key index table r s abs group value Null true left
right min user row in between from case limit window first select not and or is like distinct with
union insert last begin all any exists using values"""


@pytest.mark.parametrize(
    ("written", "side", "name"),
    [
        ("r.x", "r", "x"),
        ("R.X", "r", "X"),
        ("S.MixedCase", "s", "MixedCase"),
        ('"r".x', "r", "x"),
        ('s."my col"', "s", "my col"),
        ('s."a""b"', "s", 'a"b'),
        ('s."x.y"', "s", "x.y"),
        ("r . x", "r", "x"),
        ("r.é", "r", "é"),
        ("r.温度", "r", "温度"),
        ("r._1", "r", "_1"),
        ('r."select"', "r", "select"),
        ('r."-- no comment; [1]"', "r", "-- no comment; [1]"),
        *((f"r.{name}", "r", name) for name in KEYWORDS.split()),
    ],
)
def test_names_are_kept_as_written(written: str, side: Side, name: str) -> None:
    expected = Column(side, name, ANY)
    found = terms(f"{written} < r.a + s.b AND s.b = {written} + r.c")
    assert found[0].left == expected
    assert found[1].right == op(expected, "+", r("c"))


UTC_PLUS_2 = timezone(timedelta(hours=2))


def micros(moment: datetime) -> int:
    """Nanoseconds since 1970 of a datetime, exactly."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC if moment.tzinfo else None)
    return (moment - epoch) // timedelta(microseconds=1) * 1000


@pytest.mark.parametrize(
    ("written", "ns", "zoned"),
    [
        ("TIMESTAMP '1970-01-01'", 0, False),
        ("timestamp '1970-01-01 00:01'", MINUTE, False),
        ("TIMESTAMP '2020-02-29 12:34:56'", micros(datetime(2020, 2, 29, 12, 34, 56)), False),
        (
            "TIMESTAMP '2020-02-29T12:34:56.123456789'",
            micros(datetime(2020, 2, 29, 12, 34, 56, 123456)) + 789,
            False,
        ),
        ("TIMESTAMP '1969-12-31 23:59:59.999999999'", -1, False),
        ("TIMESTAMP '1970-01-01 00:00:00.5000000000000'", 5 * 10**8, False),
        ("TIMESTAMP '2020-01-01 00:00:00Z'", micros(datetime(2020, 1, 1, tzinfo=UTC)), True),
        ("TIMESTAMP '2020-01-01 00:00:00+02:00'", micros(datetime(2020, 1, 1, tzinfo=UTC_PLUS_2)), True),
        ("TIMESTAMP '2020-01-01 00:00 +0200'", micros(datetime(2020, 1, 1, tzinfo=UTC_PLUS_2)), True),
        (
            "TIMESTAMP '2020-01-01 00:00:00.25 -02'",
            micros(datetime(2020, 1, 1, 2, 0, 0, 250000, tzinfo=UTC)),
            True,
        ),
        ("TIMESTAMP '0001-01-01'", micros(datetime(1, 1, 1)), False),
        (
            "TIMESTAMP '9999-12-31 23:59:59.999999999'",
            micros(datetime(9999, 12, 31, 23, 59, 59, 999999)) + 999,
            False,
        ),
        ("DATE '1970-01-02'", 86400 * 10**9, False),
        ("CAST('1970-01-02' AS DATE)", 86400 * 10**9, False),
        ("cast('1970-01-01 00:00:01' as timestamp)", 10**9, False),
    ],
)
def test_instants(written: str, ns: int, zoned: bool) -> None:
    text = f"r.t < s.t AND r.t >= {written}"
    literal = parse(text).bands[0][1].right
    assert bare(literal) == Instant(ns, zoned, ANY)
    assert text[slice(*literal.span)] == written


@pytest.mark.parametrize(
    ("written", "ns"),
    [
        ("INTERVAL '5' MINUTE", 5 * MINUTE),
        ("INTERVAL '5 minutes'", 5 * MINUTE),
        ("INTERVAL '5minutes'", 5 * MINUTE),
        ("INTERVAL 5 MINUTE", 5 * MINUTE),
        ("interval 5 mins", 5 * MINUTE),
        ("INTERVAL -5 MINUTE", -5 * MINUTE),
        ("INTERVAL - - 5 MINUTE", 5 * MINUTE),
        ("INTERVAL + 5 MINUTE", 5 * MINUTE),
        ("INTERVAL '-5' MINUTE", -5 * MINUTE),
        ("INTERVAL '-5 minutes'", -5 * MINUTE),
        ("INTERVAL '+5' MINUTES", 5 * MINUTE),
        ("INTERVAL '1 day 2 hours 3 min'", (26 * 60 + 3) * MINUTE),
        ("INTERVAL '1h30min'", 90 * MINUTE),
        ("INTERVAL '1.5' HOUR", 90 * MINUTE),
        ("INTERVAL '1.5 hours'", 90 * MINUTE),
        ("INTERVAL '.5 hours'", 30 * MINUTE),  # sqlglot itself reads 5 hours
        ("INTERVAL '0.5 hours'", 30 * MINUTE),
        ("INTERVAL .5 HOUR", 30 * MINUTE),
        ("INTERVAL 1e3 SECOND", 1000 * 10**9),
        ("INTERVAL 1e-9 SECOND", 1),
        ("INTERVAL 0.1 SECONDS", 10**8),
        ("INTERVAL '123456789012345678901' NANOSECOND", 123456789012345678901),
        *((f"INTERVAL '2' {unit}", 2) for unit in ("ns", "nanosecond", "NANOSECONDS")),
        *((f"INTERVAL '2' {unit}", 2 * 10**3) for unit in ("us", "µs", "μs", "microsecond", "MICROSECONDS")),
        *((f"INTERVAL '2' {unit}", 2 * 10**6) for unit in ("ms", "millisecond", "MILLISECONDS")),
        *((f"INTERVAL '2' {unit}", 2 * 10**9) for unit in ("s", "S", "sec", "secs", "second", "SECONDS")),
        *((f"INTERVAL '2' {unit}", 120 * MINUTE) for unit in ("h", "hr", "hrs", "hour", "HOURS")),
        *((f"INTERVAL '2' {unit}", 2880 * MINUTE) for unit in ("d", "day", "DAYS")),
        *((f"INTERVAL '2 {unit}'", 7 * 2880 * MINUTE) for unit in ("w", "week", "WEEKS")),
    ],
)
def test_intervals(written: str, ns: int) -> None:
    for text in (
        f"r.t < s.t + {written}",
        f"r.t < s.t + {written} AND r.x = s.x",
        f"(r.t < s.t + ({written}))",
    ):
        found = parse(text).bands[0][0].right
        assert isinstance(found, Arithmetic)
        assert bare(found.right) == d(ns)
        assert text[slice(*found.right.span)] == written


def test_or_of_bands() -> None:
    text = "s.x BETWEEN r.x AND r.x + 1 OR (s.x = r.x - 9 AND r.x > 5) OR ((s.x - r.x = 4))"
    assert bare(parse(text).bands) == (
        (cmp(s("x"), ">=", r("x")), cmp(s("x"), "<=", op(r("x"), "+", n("1")))),
        (cmp(s("x"), "=", op(r("x"), "-", n("9"))), cmp(r("x"), ">", n("5"))),
        (cmp(op(s("x"), "-", r("x")), "=", n("4")),),
    )
    assert bare(parse("((r.x = s.x) OR r.x = s.x + 1)").bands) == (
        (cmp(r("x"), "=", s("x")),),
        (cmp(r("x"), "=", op(s("x"), "+", n("1"))),),
    )


def test_spans() -> None:
    text = '(r.a  <  ( s."b c" + 1 )*2) AND abs( -r.x ) >= - 5 AND\n  s.t BETWEEN (r.lo) AND -(r.hi)'
    found = parse(text).bands[0]

    def at(node: Any) -> str:
        return text[slice(*node.span)]

    assert at(found[0]) == 'r.a  <  ( s."b c" + 1 )*2'
    assert at(found[0].left) == "r.a"
    product = found[0].right
    assert isinstance(product, Arithmetic)
    assert (at(product), at(product.left), at(product.right)) == ('( s."b c" + 1 )*2', '( s."b c" + 1 )', "2")
    assert isinstance(product.left, Arithmetic)
    assert at(product.left.left) == 's."b c"'
    absolute = found[1].left
    assert isinstance(absolute, Absolute)
    assert (at(absolute), at(absolute.operand), at(found[1].right)) == ("abs( -r.x )", "-r.x", "- 5")
    assert at(found[2]) == at(found[3]) == "s.t BETWEEN (r.lo) AND -(r.hi)"
    assert (at(found[2].left), at(found[2].right), at(found[3].right)) == ("s.t", "r.lo", "-(r.hi)")


# The text with the offending part between » and «, and a piece of the reason.
REFUSED: list[tuple[str, str]] = [
    # text that is not a condition
    ("»«", "empty"),
    ("»  \n«", "empty"),
    ("»r.x«", "not a comparison"),
    ("r.x < s.x AND (»s.x + 1«)", "not a comparison"),
    ("»5«", "not a comparison"),
    ("»SELECT« 1", "is not allowed here"),
    ("r.x < s.x »foo«", "is not allowed here"),
    ("r.x < s.x »AS« foo", "is not allowed here"),
    ("(r.x < s.x »AS« foo)", "leave AS out"),
    ("»(r.x < s.x, 3)«", "a list"),
    ("»ELSE« r.x < s.x", "does not begin"),
    # broken syntax
    ("r.x »<«", "missing after `<`"),
    ("»<« r.x", "missing before `<`"),
    ("r.x < s.x »AND«", "missing after `AND`"),
    ("»AND« r.x < s.x", "missing before `AND`"),
    ("r.x < s.x »AND AND« r.y < s.y", "missing between"),
    ("r.x »= <« s.x", "missing between"),
    ("r.x »* *« 2 < s.x", "missing between"),
    ("r.x < abs»()«", "missing between"),
    ("»(«r.x < s.x", "no matching `)`"),
    ("r.x < s.x»)«", "no matching `(`"),
    ("r.x < »'abc«", "never closed"),
    ('r.»"abc < s.x«', "never closed"),
    ('r."a" < s.»"b""c«', "never closed"),
    ("r.x »s«.x", "is not allowed here"),
    ("r.x »=>« s.x", "did you mean >="),
    ("r.x < s.x »&&« r.y < s.y", "did you mean AND"),
    ("r.x »==« s.x", "write ="),
    ("r.x < s.x»;«", "`;`"),
    ("r.x < s.x»;« r.y < s.y", "`;`"),
    ("r.x < s.x »-- less«", "comment"),
    ("r.x < s.x »--5«", "two minus signs"),
    ("r.x »/* a */« < s.x", "comment"),
    ("»/* a */« r.x < s.x", "comment"),
    ("r.x BETWEEN 1 »2«", "is not allowed here"),
    ("r.x BETWEEN »SYMMETRIC« 1 AND s.x", "is not allowed here"),
    ("»+« (r.x < s.x)", "is not allowed here"),
    # names
    ("»x« < s.x", "write r.x or s.x"),
    ('r.x < abs(»"my x"«)', 'write r."my x" or s."my x"'),
    ("»r« < s.x", "is a table"),
    ("»t«.x < s.x", "r and s"),
    ('r.x < »"S"«.x', "r and s"),
    ("»r.x.y« < s.x", '"x.y"'),
    ("»a.b.r.x« < s.x", "more than two parts"),
    ("»r.*« < s.x", "does not name a column"),
    ("r.»1« < s.x", 'r."1"'),
    ("r.»5x« < s.x", 'r."5x"'),
    ("»date« < r.x", "r.date"),
    # numbers
    ("r.x < »1_000«", "not a number"),
    ("r.x < »0x1F«", "not a number"),
    ("r.x < »1abc«", "not a number"),
    ("r.x < »1e«", "not a number"),
    ("r.x < s.x + ». 5«", "not a number"),
    (f"r.x < »{'9' * (MAX_NUMBER + 1)}«", "characters"),
    (f"r.x < »1e{MAX_NUMBER + 1}«", "exponent"),
    ("r.x < s.x + »1e-999999999«", "exponent"),
    # operators
    ("r.x »/« 2 < s.x", "division"),
    ("r.x + r.y * 3 »/« 2 < s.x", "division"),
    ("abs(r.x) »/« 2 / 3 < s.x", "division"),
    ("r.x »DIV« 2 < s.x", "division"),
    ("r.x »%« 2 < s.x", "remainder"),
    ("r.x »&« 1 < s.x", "only + - *"),
    ("r.x »|« 1 < s.x", "only + - *"),
    ("r.x »^« 1 < s.x", "only + - *"),
    ("r.x »<«< 1 < s.x", "only + - *"),
    ("»~«r.x < s.x", "only + - *"),
    ("r.x »||« 'a' < s.x", "only + - *"),
    ("r.x »->« 'a' < s.x", "is not allowed here"),
    ("r.x»[«1] < s.x", "elements"),
    ("r.x »COLLATE« c < s.x", "is not allowed here"),
    ("r.t »AT« TIME ZONE 'UTC' < s.t", "AT TIME ZONE"),
    # predicates
    ("r.x »IS« NULL", "IS is not allowed"),
    ("r.x < s.x AND s.y »IS« NOT NULL", "IS is not allowed"),
    ("r.x »IS« NOT DISTINCT FROM s.x", "IS is not allowed"),
    ("r.x »<=>« s.x", "not allowed"),
    ("r.x »IN« (1, 2)", "IN is not allowed"),
    ("r.x »NOT« IN (1, 2)", "NOT is not allowed"),
    ("r.x »LIKE« 'a%'", "LIKE is not allowed"),
    ("»NOT« r.x < s.x", "opposite comparison"),
    ("r.x < s.x AND »NOT« (r.y < s.y)", "opposite comparison"),
    ("r.x »NOT« BETWEEN 1 AND s.x", "NOT is not allowed"),
    ("r.x < s.x »<« r.y", "a < b AND b < c"),
    ("r.x = s.x »=« r.y", "a < b AND b < c"),
    ("r.x < s.x »<« r.y < s.y", "a < b AND b < c"),
    ("r.x = (s.x »<« 5)", "a comparison cannot be an operand"),
    ("(r.x »<« s.x) + 1 < 2", "a comparison cannot be an operand"),
    ("(r.x < s.x »AND« r.y < s.y) = 1", "gives no value"),
    ("r.x < s.x »XOR« r.y < s.y", "is not allowed here"),
    # values
    ("r.x < »'abc'«", "text literal"),
    ("r.x < »'2020-01-01'«::timestamp", "TIMESTAMP '…'"),
    ("r.x < »N'abc'«", "text literal"),
    ("r.x < s.x AND r.y = »N'abc'«", "no N before it"),
    ("r.x >= »'abc'«", "one side of = or <>"),
    ("r.x = s.x + »'abc'«", "one side of = or <>"),
    ("r.x = -»'abc'«", "one side of = or <>"),
    ("r.x = +»'abc'«", "one side of = or <>"),
    ("r.x = +(»'abc'«)", "one side of = or <>"),
    ("r.x = abs(»'abc'«)", "one side of = or <>"),
    ("r.x = »'a'« 'b'", "one side of = or <>"),
    ("r.x = »'a'« || 'b'", "alone"),
    ("r.x = »'a'« COLLATE c", "alone"),
    ("r.x BETWEEN »'a'« AND s.x", "TIMESTAMP '…'"),
    ("r.x BETWEEN s.x AND »'z'«", "TIMESTAMP '…'"),
    ("r.x < s.x AND »'abc'«", "text literal"),
    ("r.x = s.x AND »'a' = 'b'«", "constants only"),
    ("»r.x = 'a'«", "relates r and s"),
    ("r.x = s.x AND r.y = »'a\ud800'«", "lone surrogate"),
    ("r.x < »X'00'«", "binary literal"),
    ("r.x = s.x AND r.y = »X'0'«", "two hexadecimal digits per byte"),
    ("r.x = s.x AND r.y = »X'0g'«", "two hexadecimal digits per byte"),
    ("r.x = s.x AND r.y = »X'00 '«", "two hexadecimal digits per byte"),
    ("r.x = X »'00'«", "text literal"),
    ("r.x = s.x»'00'«", "text literal"),
    ("r.x < »TRUE«", "TRUE"),
    ("r.x = s.x - »TRUE«", "TRUE"),
    ("r.x »IS« TRUE", "IS is not allowed"),
    ("r.x < s.x AND »false«", "FALSE"),
    ("r.x = »NULL«", "NULL"),
    ("r.x < »?«", "parameter"),
    ("r.x < »:«limit", "parameter"),
    ("r.x < »@«limit", "parameter"),
    ("r.x < »{«{ limit }}", "is not allowed here"),
    ("»*« < s.x", "does not name a column"),
    # functions and the like
    ("»mod(r.x, 2)« < s.x", "the function mod"),
    ("r.x < s.x AND »sqrt(abs(r.x))« < 2", "the function sqrt"),
    ("abs(»floor(r.x)«) < s.x", "the function floor"),
    ("»now()« < s.x", "the function now"),
    ("»DATE('2020-01-01')« < s.x", "write DATE '…'"),
    ("r.x < »max(s.x)« OVER ()", "the function max"),
    ("r.x < abs(s.x, 2»)«", "abs takes one"),
    ('r.x < »"abs"«(s.x)', "is not allowed here"),
    ("»{«fn abs(r.x)} < s.x", "is not allowed here"),
    ("»CASE« WHEN r.x < 1 THEN 1 END < s.x", "CASE"),
    ("r.x < »(SELECT 1)«", "subquery"),
    ("»EXISTS(SELECT 1)«", "EXISTS"),
    ("»CAST(r.x AS INT)« < s.x", "cast columns before"),
    ("r.x»::«int < s.x", "cast columns before"),
    ("»TRY_CAST('2020-01-01' AS TIMESTAMP)« < s.x", "TRY_CAST"),
    # instants
    ("»CAST('2020-01-01' AS TIMESTAMPTZ)« < s.x", "only CAST"),
    ("»CAST('2020-01-01' AS TIMESTAMP(9))« < s.x", "only CAST"),
    ("»TIMESTAMPTZ« '2020-01-01' < s.x", "+02:00"),
    ("»TIMESTAMP« WITH TIME ZONE '2020-01-01' < s.x", "+02:00"),
    ("»TIME« '10:00' < s.x", "only TIMESTAMP"),
    ("r.t < TIMESTAMP »'yesterday'«", "YYYY-MM-DD hh"),
    ("r.t < TIMESTAMP »'2020-1-1'«", "YYYY-MM-DD hh"),
    ("r.t < TIMESTAMP »'2020-01-01 10:00 Europe/Berlin'«", "YYYY-MM-DD hh"),
    ("r.t < TIMESTAMP »'2021-02-29'«", "calendar"),
    ("r.t < TIMESTAMP »'0000-01-01'«", "calendar"),
    ("r.t < TIMESTAMP »'2020-01-01 24:00:00'«", "out of range"),
    ("r.t < TIMESTAMP »'2020-01-01 23:59:60'«", "out of range"),
    ("r.t < TIMESTAMP »'2020-01-01 23:60'«", "out of range"),
    ("r.t < TIMESTAMP »'2020-01-01 00:00+24:00'«", "out of range"),
    ("r.t < TIMESTAMP »'2020-01-01 00:00:00.1234567891'«", "finer than a nanosecond"),
    ("r.t < DATE »'2020-01-01 10:00'«", "'YYYY-MM-DD'"),
    ("r.t < TIMESTAMP '2020-01-01'»::«date", "only CAST"),
    # intervals
    ("r.t - s.t < INTERVAL '1' »MONTH«", "no fixed length"),
    ("r.t - s.t < INTERVAL '1 »year«'", "no fixed length"),
    ("r.t - s.t < INTERVAL 1 »QUARTER«", "no fixed length"),
    ("r.t - s.t < INTERVAL '1' »frob«", "not a unit of an INTERVAL"),
    ("r.t - s.t < INTERVAL '1' »m«", "minute or month"),
    ("r.t - s.t < INTERVAL »'5'«", "has no unit"),
    ("r.t - s.t < INTERVAL »5« AND r.x = s.x", "has no unit"),
    ("r.t - s.t < INTERVAL »'5 minutes hour'«", "cannot be read"),
    ("r.t - s.t < INTERVAL »'1 02:03:04'«", "has no unit"),
    ("r.t - s.t < INTERVAL »''«", "cannot be read"),
    ("r.t - s.t < INTERVAL »'-1 day 2 hours'«", "sign"),
    ("r.t - s.t < INTERVAL '1' DAY »TO« SECOND", "is not allowed here"),
    ("r.t - s.t < INTERVAL '5 minutes' »hour«", "is not allowed here"),
    ("r.t - s.t < INTERVAL '5' minute»(«3)", "is not allowed here"),
    ("r.t - s.t < »INTERVAL '1.5' NANOSECOND«", "whole number of nanoseconds"),
    ("r.t - s.t < INTERVAL »5« * 2 MINUTE", "takes one number"),
    ("r.t - s.t < INTERVAL »r«.x MINUTE", "takes one number"),
    # sqlglot reads these as r.t - (5 minutes + 3 seconds).
    ("s.t < r.t - INTERVAL 5 MINUTE + »3« SECOND", "write INTERVAL again"),
    ("s.t < r.t - INTERVAL 5 MINUTE »'3'« SECOND", "is not allowed here"),
    # combinations of terms
    ("»1 < 2«", "constants only"),
    ("r.x < s.x AND »2 * 3 > -abs(1)«", "constants only"),
    ("r.x < s.x AND »1 BETWEEN 0 AND r.x«", "constants only"),
    ("»r.x > 5«", "relates r and s"),
    ("»r.x > 5 AND s.x < 5«", "relates r and s"),
    ("(»5 BETWEEN r.x AND s.x«)", "relates r and s"),
    ("»r.x < r.y AND s.x < s.y« OR r.x = s.x", "this part of the OR"),
    ("r.x = s.x OR (»s.x = 5«)", "this part of the OR"),
    ("r.x = s.x OR »r.y« = s.x", "same two columns"),
    ("r.x = s.x OR r.x = s.x + 1 AND »s.z« > 5", "same two columns"),
    ("(r.x = s.x »OR« r.x = s.x + 1) AND r.y < s.y", "below an AND"),
    ("r.y < s.y AND ((r.x = s.x »OR« r.x = s.x + 1))", "below an AND"),
    ("r.y < s.y AND (r.x = s.x »OR« r.x = s.x + 1 OR r.x = 5)", "below an AND"),
]


@pytest.mark.parametrize(("marked", "fragment"), REFUSED)
def test_refused(marked: str, fragment: str) -> None:
    start, end = marked.index("»"), marked.index("«") - 1
    text = marked.replace("»", "").replace("«", "")
    with pytest.raises(PredicateError) as caught:
        parse(text)
    error = caught.value
    assert fragment in error.reason
    assert (error.start, error.end, error.text) == (start, max(start + 1, end), text)


@pytest.mark.parametrize("given", [None, 5, b"r.x < s.x", ["r.x < s.x"]])
def test_not_a_text(given: object) -> None:
    with pytest.raises(ArgumentError, match=f"not {type(given).__name__}"):
        parse(given)  # type: ignore[arg-type]


def test_sums_lean_left_up_to_the_depth_limit() -> None:
    text = "r.x < s.x" + " + 1" * (MAX_DEPTH - 1)
    assert isinstance(parse(text).bands[0][0].right, Arithmetic)
    with pytest.raises(PredicateError, match=f"{MAX_DEPTH} levels"):
        parse(text + " + 1")
    with pytest.raises(PredicateError, match="levels"):
        parse("(" + "1 + " * 150 + "r.x)" + " + 1" * 100 + " < s.x")


@pytest.mark.parametrize(("before", "after"), [("(", ")"), ("abs(", ")"), ("- ", ""), ("+ ", "")])
def test_nesting_limit(before: str, after: str) -> None:
    parse(before * MAX_NESTING + "r.x" + after * MAX_NESTING + " < s.x")
    for levels in (MAX_NESTING + 1, 1000):
        with pytest.raises(PredicateError) as caught:
            parse(before * levels + "r.x" + after * levels + " < s.x")
        assert "inside each other" in caught.value.reason
        assert caught.value.start == len(before) * MAX_NESTING + len(before.strip()) - 1


@pytest.mark.parametrize(
    "text",
    [
        "CASE WHEN " * 500,
        "1 / 1 % " * 1200 + "1 < r.x",
        "NOT " * 2000 + "r.x < s.x",
        "f(" * 20 + "(" * 300,
        "'" * 999,
    ],
)
def test_deep_texts_are_predicate_errors(text: str) -> None:
    with pytest.raises(PredicateError):
        parse(text)


def test_a_full_call_stack_is_a_predicate_error() -> None:
    def descend(frames: int) -> Condition:
        return descend(frames - 1) if frames else parse("(" * 20 + "r.x < s.x" + ")" * 20)

    assert descend(0).bands
    with pytest.raises(PredicateError, match="call stack"):
        descend(sys.getrecursionlimit() - len(inspect.stack()) - 150)


def test_text_limit() -> None:
    term = " AND r.x < s.x"
    text = "r.y = s.y" + term * ((MAX_TEXT - 9) // len(term))
    assert len(parse(text).bands[0]) == 1 + (MAX_TEXT - 9) // len(term)
    with pytest.raises(PredicateError, match=f"at most {MAX_TEXT}"):
        parse(text + " " * MAX_TEXT)


def test_message_shows_the_position() -> None:
    with pytest.raises(PredicateError) as caught:
        parse("r.x < s.x AND\n  r.y / 2 < s.y")
    assert str(caught.value).endswith("\n    r.y / 2 < s.y\n        ^")


def test_sqlglot_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    for text in ("r.x -> '5' < 1", "r.x[0.5] < s.x", "ANALYZE r.x"):
        with pytest.raises(PredicateError):
            parse(text)
    assert not caplog.records


def test_conditions_do_not_import_sqlglot() -> None:
    """The tree can be used, pickled and sent around without the parser."""
    code = "import sys, millrace.host.expr.condition; sys.exit('sqlglot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


SOUP = (
    "r.x s.x r s . 1 .5 1e3 'a' '5' '5 minutes' \"q\" + - * / ( ) , < <= = <> == <=> AND OR NOT BETWEEN IN "
    "TRUE X'0a' x'1 IS NULL abs( abs mod( INTERVAL MINUTE TIMESTAMP DATE CAST( AS :: CASE WHEN THEN END SELECT ELSE [ "
    "] { } ? : @ ! ~ & | ; -- /* */ LIKE OVER DIV -> := ' \" 1_0 é \\ ` \x00 \n WITH VALUES DISTINCT ANY FILTER "
    "EXTRACT( IF( INT TO XOR COLLATE AT TIME ZONE N'x' 0x1 # $ ^ || => && MONTH \t FROM"
)
WORDS = st.sampled_from(SOUP.split(" "))


@given(st.lists(WORDS, max_size=12), st.sampled_from(["", " "]))
@example(["'"], "")
@example(["ELSE"], " ")
@settings(max_examples=500, deadline=None)
def test_any_text_gives_a_condition_or_an_error_with_a_position(words: list[str], glue: str) -> None:
    text = glue.join(words)
    try:
        condition = parse(text)
    except PredicateError as refusal:
        error = refusal
    else:
        assert condition.text == text
        return
    assert error.text == text
    assert 0 <= error.start < error.end <= max(1, len(text))
