"""Round trip of conditions: a random tree, written as SQL in a random style, parses to the same tree."""

from __future__ import annotations

import re
import string
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.host.expr.condition import (
    Absolute,
    Arithmetic,
    Column,
    Comparison,
    Constant,
    Duration,
    Expression,
    Instant,
    Negate,
    Number,
)
from millrace.predicate import parse
from tests.sdk.predicate.trees import ANY, bare, cmp, n, op, r, s

NAMES = st.text(string.ascii_letters + string.digits + "_ é\"'.;-(", min_size=1, max_size=6)
COLUMNS = st.builds(Column, st.sampled_from(["r", "s"]), NAMES, st.just(ANY))
NUMBERS = st.one_of(
    st.integers(-(10**25), 10**25).map(lambda i: Number(Fraction(i), False, ANY)),
    st.integers(-(10**15), 10**15).map(lambda i: Number(Fraction(i, 10**6), True, ANY)),
)
INSTANTS = st.builds(Instant, st.integers(-(10**18), 10**18), st.booleans(), st.just(ANY))
DURATIONS = st.builds(Duration, st.integers(-(10**18), 10**18), st.just(ANY))
LEAVES = st.one_of(COLUMNS, COLUMNS, NUMBERS, INSTANTS, DURATIONS)


def negated(inner: Expression) -> Expression:
    """`-inner` in normal form."""
    if isinstance(inner, Number):
        return Number(-inner.value, inner.decimal, ANY)
    return Duration(-inner.ns, ANY) if isinstance(inner, Duration) else Negate(inner, ANY)


EXPRESSIONS: st.SearchStrategy[Expression] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(negated),
        inner.map(lambda x: Absolute(x, ANY)),
        st.builds(Arithmetic, st.sampled_from(["+", "-", "*"]), inner, inner, st.just(ANY)),
    ),
    max_leaves=6,
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=6) | st.text("'\"-;\\ ", max_size=4)
CONSTANTS = st.builds(Constant, st.one_of(TEXTS, st.binary(max_size=6), st.booleans()), st.just(ANY))
SYMBOLS = st.sampled_from(["=", "<", "<=", ">", ">=", "<>"])
EQUALITIES = st.sampled_from(["=", "<>"])
COMPARISONS = st.one_of(
    st.builds(Comparison, SYMBOLS, EXPRESSIONS, EXPRESSIONS, st.just(ANY)),
    st.builds(Comparison, EQUALITIES, EXPRESSIONS, CONSTANTS, st.just(ANY)),
    st.builds(Comparison, EQUALITIES, CONSTANTS, EXPRESSIONS, st.just(ANY)),
)


class Renderer:
    """Writes a tree as SQL, with spaces, parentheses, signs and spellings drawn at random."""

    def __init__(self, draw: st.DataObject) -> None:
        self.draw = draw

    def pick(self, *choices: str) -> str:
        return self.draw.draw(st.sampled_from(choices))

    def gap(self) -> str:
        return self.pick(" ", " ", "  ", "\n", "\t")

    def case(self, word: str) -> str:
        return self.pick(word.upper(), word.lower(), word.title())

    def column(self, node: Column) -> str:
        quoted = '"' + node.name.replace('"', '""') + '"'
        plain = re.fullmatch(r"[A-Za-z_é][A-Za-z0-9_é]*", node.name)
        return f"{self.case(node.side)}.{self.pick(node.name, quoted) if plain else quoted}"

    def number(self, node: Number) -> str:
        size = abs(node.value)
        written = str(size.numerator)
        if node.decimal:
            scaled = str(int(size * 10**6)).rjust(7, "0")
            integer, fraction = scaled[:-6], scaled[-6:]
            exponents = (f"{integer}{fraction}e-6", f"{integer}.{fraction}E+0", f"{integer}{fraction}.e-6")
            written = self.pick(f"{integer}.{fraction}", *exponents)
        return f"-{self.pick('', ' ')}{written}" if node.value < 0 else written

    def instant(self, node: Instant) -> str:
        seconds, ns = divmod(node.ns, 10**9)
        east = self.draw.draw(st.integers(-839, 839)) if node.zoned else 0
        moment = datetime(1970, 1, 1) + timedelta(seconds=seconds, minutes=east)
        hours, minutes = divmod(abs(east), 60)
        zone = f"{self.pick('', ' ')}{'-' if east < 0 else '+'}{hours:02}:{minutes:02}" if node.zoned else ""
        text = f"'{moment:%Y-%m-%d}{self.pick(' ', 'T')}{moment:%H:%M:%S}.{ns:09}{zone}'"
        return self.pick(f"TIMESTAMP {text}", f"timestamp{text}", f"CAST({text} AS TIMESTAMP)")

    def duration(self, node: Duration) -> str:
        ns, sign = abs(node.ns), "-" if node.ns < 0 else ""
        seconds = f"{ns // 10**9}.{ns % 10**9:09}"
        return f"{self.case('interval')} " + self.pick(
            f"'{sign}{ns}' {self.case('nanosecond')}",
            f"'{sign}{ns} ns'",
            f"{sign}{ns} NANOSECONDS",
            f"'{sign}{seconds}' SECOND",
            f"'{sign}{seconds} secs'",
            f"{sign}{seconds} SECONDS",
        )

    def constant(self, node: Constant) -> str:
        if isinstance(node.value, bool):
            return self.case(str(node.value))
        if isinstance(node.value, bytes):
            return f"{self.pick('X', 'x')}'{self.case(node.value.hex())}'"
        return "'" + node.value.replace("'", "''") + "'"

    def expression(self, node: Expression, power: int) -> str:
        """`power`: 0 where no operand needs parentheses, 1 in a product or right of a minus, 2 after a sign."""
        own = 3
        if isinstance(node, Column):
            text = self.column(node)
        elif isinstance(node, Number):
            text = self.number(node)
        elif isinstance(node, Instant):
            text = self.instant(node)
        elif isinstance(node, Duration):
            # sqlglot takes a number or a string after an interval for a part of it.
            text = "(" + self.duration(node) + ")"
        elif isinstance(node, Constant):
            return self.pick("{}", "{}", "({})", "( {})").format(self.constant(node))
        elif isinstance(node, Absolute):
            text = f"{self.case('abs')}{self.pick('', ' ')}({self.expression(node.operand, 0)})"
        elif isinstance(node, Negate):
            text = "- " + self.expression(node.operand, 3)
        else:
            assert isinstance(node, Arithmetic)
            own = 2 if node.op == "*" else 1
            gap = self.gap()
            text = f"{self.expression(node.left, own)}{gap}{node.op} {self.expression(node.right, own + 1)}"
        if own < power or self.pick("", "", "", "(") == "(":
            text = f"{self.pick('', '+', '+ ')}({self.pick('', ' ')}{text})"
        return text

    def term(self, node: Comparison) -> str:
        symbol = self.pick("<>", "!=") if node.op == "<>" else node.op
        if isinstance(node.right, Duration) and self.pick("bare", "grouped") == "bare":
            right = self.duration(node.right)
        else:
            right = self.expression(node.right, 0)
        text = f"{self.expression(node.left, 0)}{self.gap()}{symbol} {right}"
        return self.pick("{}", "{}", "({})", "(( {}))").format(text)

    def conjunction(self, nodes: list[Comparison]) -> str:
        if len(nodes) > 2 and self.pick("flat", "grouped") == "grouped":
            return f"{self.term(nodes[0])}{self.gap()}AND ({self.conjunction(nodes[1:])})"
        return f"{self.gap()}{self.case('and')} ".join(self.term(node) for node in nodes)


RELATING = Comparison("=", Column("r", "a", ANY), Column("s", "b", ANY), ANY)


def has_column(node: Any) -> bool:
    if isinstance(node, Column):
        return True
    return any(has_column(part) for part in vars(node).values() if hasattr(part, "span"))


@given(st.lists(COMPARISONS.filter(has_column), max_size=4), st.integers(0, 4), st.data())
@settings(max_examples=400, deadline=None)
def test_round_trip(drawn: list[Comparison], position: int, data: st.DataObject) -> None:
    nodes = [*drawn[:position], RELATING, *drawn[position:]]
    text = Renderer(data).conjunction(nodes)
    assert bare(parse(text).bands) == (tuple(nodes),), text


@given(st.lists(st.tuples(SYMBOLS, st.integers(0, 99), SYMBOLS), min_size=1, max_size=4), st.data())
@settings(max_examples=50, deadline=None)
def test_round_trip_of_an_or(drawn: list[tuple[Any, int, Any]], data: st.DataObject) -> None:
    bands = tuple(
        (cmp(op(r("a"), "-", s("b")), first, n(str(number))), cmp(r("a"), second, s("b")))
        for first, number, second in drawn
    )
    write = Renderer(data)
    texts = [write.pick("{}", "({})").format(write.conjunction(list(band))) for band in bands]
    text = write.pick("{}", "({})").format(f" {write.case('or')} ".join(texts))
    assert bare(parse(text).bands) == bands
