"""The executable specification of Millrace's joins: pure Python over ints and `Fraction`, row by row, easy to read.

It has its own condition parser and evaluator and its own time ordering. It imports nothing of Millrace, NumPy or Arrow,
so that no bug is shared by both sides of a comparison. Limits: it is slow, and checks only the input errors that would
make a test meaningless. `tests/test_oracle.py` tests it with examples.

Values of a row are `int`, `float` (a float32 already widened), `None`, and `Instant` for dates and timestamps (exact
nanoseconds since 1970); differences of instants are `Interval`s. Values that only `=` and `<>` compare are `str`,
`bytes`, `bool`, and `Fraction` for a decimal. The rules of the contract:

- integer arithmetic is exact and unbounded; a decimal literal is a `Fraction`, so exact against integers;
- arithmetic of an exact number with a float first rounds to the nearest double (infinity beyond the largest);
- exact numbers and floats compare as exact numbers; only a decimal literal that is itself an operand of a comparison
  with a float (`r.f < 0.1`, also `-0.1`) is a double there;
- NaN, stored or computed, is null; a term with a null operand is not true; `-0.0` equals `0.0`.
"""

from __future__ import annotations

import math
import re
from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from operator import add, eq, ge, gt, le, lt, mul, ne, neg, sub
from typing import Any

# --- Values ---------------------------------------------------------------------------------------

UNIT_NS: dict[str, int] = {
    "nanosecond": 1,
    "microsecond": 10**3,
    "millisecond": 10**6,
    "second": 10**9,
    "minute": 60 * 10**9,
    "hour": 3600 * 10**9,
    "day": 86400 * 10**9,
    "week": 7 * 86400 * 10**9,
}


@dataclass(frozen=True, order=True, slots=True)
class Interval:
    """A length of time in exact nanoseconds."""

    ns: int

    def __add__(self, other: Any) -> Any:
        if isinstance(other, (Interval, Instant)):
            return type(other)(self.ns + other.ns)
        return NotImplemented

    def __sub__(self, other: Any) -> Any:
        return Interval(self.ns - other.ns) if isinstance(other, Interval) else NotImplemented

    def __neg__(self) -> Interval:
        return Interval(-self.ns)

    def __abs__(self) -> Interval:
        return Interval(abs(self.ns))


@dataclass(frozen=True, order=True, slots=True)
class Instant:
    """A point in time in exact nanoseconds since 1970: in UTC if zoned, wall time if naive or a date."""

    ns: int

    def __add__(self, other: Any) -> Any:
        return Instant(self.ns + other.ns) if isinstance(other, Interval) else NotImplemented

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, Instant):
            return Interval(self.ns - other.ns)
        return Instant(self.ns - other.ns) if isinstance(other, Interval) else NotImplemented


Value = int | float | Fraction | Instant | Interval | str | bytes | None
Row = Mapping[str, Value]

_INSTANT = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?(?:(Z)|([+-])(\d\d):?(\d\d))?$"
)


def instant(text: str) -> Instant:
    """Parses `2024-05-01` and `2024-05-01 12:00:00.123456789`, both also with `Z` or `+02:00` at the end."""
    found = _INSTANT.match(text.strip())
    if found is None:
        raise SyntaxError(f"not a date or timestamp: {text!r}")
    day, hour, minute, second, fraction, _zulu, sign, zone_hours, zone_minutes = found.groups()
    days = datetime.fromisoformat(day).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    seconds = days // timedelta(seconds=1) + int(hour or 0) * 3600 + int(minute or 0) * 60 + int(second or 0)
    if sign:
        ahead = int(zone_hours) * 3600 + int(zone_minutes) * 60
        seconds -= ahead if sign == "+" else -ahead
    return Instant(seconds * 10**9 + int((fraction or "").ljust(9, "0")))


def interval(count: str, unit: str) -> Interval:
    """Parses the two words of `5 minutes`."""
    name = unit.lower().removesuffix("s")
    if name not in UNIT_NS:
        raise SyntaxError(f"not a unit of time: {unit!r}")
    ns = Fraction(count) * UNIT_NS[name]
    if ns.denominator != 1:
        raise SyntaxError(f"finer than a nanosecond: {count} {unit}")
    return Interval(int(ns))


def to_double(value: Any) -> float:
    """Returns the nearest double of an exact number; beyond the largest double, infinity."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _not_nan(value: Value) -> Value:
    return None if isinstance(value, float) and math.isnan(value) else value


# --- Conditions: the tree -------------------------------------------------------------------------


@dataclass(frozen=True)
class Literal:
    value: Value
    decimal: bool = False  # written with a point or an exponent


@dataclass(frozen=True)
class Column:
    side: str
    name: str


@dataclass(frozen=True)
class Call:
    """Arithmetic: `+ - *` of two operands, `-` or `abs` of one."""

    op: str
    operands: tuple[Expression, ...]


Expression = Literal | Column | Call


@dataclass(frozen=True)
class Comparison:
    """`= < <= > >= <>`: a term of the condition. `x BETWEEN a AND b` is two terms, `x >= a` and `x <= b`."""

    op: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Junction:
    """`AND` or `OR` of conditions."""

    op: str
    parts: tuple[Condition, ...]


Condition = Comparison | Junction


# --- Conditions: from text to tree ----------------------------------------------------------------

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<word>[^\W\d]\w*)
    | "(?P<quoted>(?:[^"]|"")*)"
    | '(?P<string>(?:[^']|'')*)'
    | (?P<symbol><=|>=|<>|[-+*=<>().])
    )""",
    re.VERBOSE,
)
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {"=": eq, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


class Parser:
    """Recursive descent over the tokens; one method for each precedence level, lowest first."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self._at = 0

    @staticmethod
    def _split(text: str) -> list[tuple[str, str]]:
        tokens: list[tuple[str, str]] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            found = _TOKEN.match(text, at)
            if found is None:
                raise SyntaxError(f"cannot read {text[at:]!r}")
            kind = str(found.lastgroup)
            tokens.append((kind, found[kind]))
            at = found.end()
        return tokens

    def parse(self) -> Condition:
        tree = self._disjunction()
        if self._at < len(self._tokens):
            raise self._unexpected()
        return tree

    def _disjunction(self) -> Condition:
        return self._chain("OR", self._conjunction)

    def _conjunction(self) -> Condition:
        return self._chain("AND", self._term)

    def _chain(self, word: str, part: Callable[[], Condition]) -> Condition:
        parts = [part()]
        while self._take_word(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Junction(word, tuple(parts))

    def _term(self) -> Condition:
        """A comparison, or a condition in parentheses: `(` may open either, so both are tried."""
        start = self._at
        try:
            return self._comparison()
        except SyntaxError:
            self._at = start
            if not self._take("("):
                raise
            tree = self._disjunction()
            self._expect(")")
            return tree

    def _comparison(self) -> Condition:
        left = self._sum()
        if self._take_word("BETWEEN"):
            low = self._sum()
            if not self._take_word("AND"):
                raise self._unexpected()
            return Junction("AND", (Comparison(">=", left, low), Comparison("<=", left, self._sum())))
        for op in COMPARISONS:
            if self._take(op):
                return Comparison(op, left, self._sum())
        raise self._unexpected()

    def _sum(self) -> Expression:
        return self._left_to_right(("+", "-"), self._product)

    def _product(self) -> Expression:
        return self._left_to_right(("*",), self._unary)

    def _left_to_right(self, ops: Sequence[str], part: Callable[[], Expression]) -> Expression:
        tree = part()
        while True:
            op = next((op for op in ops if self._take(op)), None)
            if op is None:
                return tree
            tree = Call(op, (tree, part()))

    def _unary(self) -> Expression:
        if not self._take("-"):
            return self._primary()
        operand = self._unary()
        if isinstance(operand, Literal):  # so that -0.1 is a literal like 0.1
            return Literal(-operand.value, operand.decimal)  # type: ignore[operator]
        return Call("-", (operand,))

    def _primary(self) -> Expression:
        kind, text = self._next()
        if kind == "number":
            decimal = any(mark in text for mark in ".eE")
            return Literal(Fraction(text) if decimal else int(text), decimal)
        if kind == "string":
            return Literal(text.replace("''", "'"))
        if (kind, text) == ("symbol", "("):
            return self._closed(self._sum())
        if kind == "word":
            return self._named(text)
        raise self._unexpected(-1)

    def _named(self, word: str) -> Expression:
        if word in ("r", "s") and self._take("."):
            kind, name = self._next()
            if kind not in ("word", "quoted"):
                raise self._unexpected(-1)
            return Column(word, name.replace('""', '"') if kind == "quoted" else name)
        if word.upper() == "ABS" and self._take("("):
            return Call("abs", (self._closed(self._sum()),))
        if word.upper() in ("TIMESTAMP", "DATE"):
            return Literal(instant(self._string()))
        if word.upper() in ("TRUE", "FALSE"):
            return Literal(word.upper() == "TRUE")
        if word.upper() == "X":
            return Literal(bytes.fromhex(self._string()))
        if word.upper() == "INTERVAL":
            halves = self._string().split()
            return Literal(interval(halves[0], halves[1] if len(halves) == 2 else self._next()[1]))
        raise self._unexpected(-1)

    def _closed(self, tree: Expression) -> Expression:
        self._expect(")")
        return tree

    def _string(self) -> str:
        kind, text = self._next()
        if kind != "string":
            raise self._unexpected(-1)
        return text

    def _next(self) -> tuple[str, str]:
        if self._at == len(self._tokens):
            raise self._unexpected()
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, symbol: str) -> bool:
        hit = self._at < len(self._tokens) and self._tokens[self._at] == ("symbol", symbol)
        self._at += hit
        return hit

    def _take_word(self, word: str) -> bool:
        here = self._tokens[self._at] if self._at < len(self._tokens) else ("", "")
        hit = here[0] == "word" and here[1].upper() == word
        self._at += hit
        return hit

    def _expect(self, symbol: str) -> None:
        if not self._take(symbol):
            raise self._unexpected()

    def _unexpected(self, step: int = 0) -> SyntaxError:
        at = self._at + step
        found = self._tokens[at][1] if at < len(self._tokens) else "the end"
        return SyntaxError(f"unexpected {found!r} (token {at}) in {self._text!r}")


# --- Conditions: from tree to functions -----------------------------------------------------------

Evaluate = Callable[[Row, Row], Any]
Holds = Callable[[Row, Row], bool]

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {"+": add, "-": sub, "*": mul}


def evaluator(tree: Expression) -> Evaluate:
    """Returns the function that computes an expression for a row of r and a row of s; None is null."""
    if isinstance(tree, Literal):
        value = tree.value
        return lambda r, s: value
    if isinstance(tree, Column):
        name = tree.name
        return (lambda r, s: _not_nan(r[name])) if tree.side == "r" else (lambda r, s: _not_nan(s[name]))
    if len(tree.operands) == 1:
        return _unary_evaluator(neg if tree.op == "-" else abs, evaluator(tree.operands[0]))
    return _binary_evaluator(_ARITHMETIC[tree.op], *map(evaluator, tree.operands))


def _unary_evaluator(apply: Callable[[Any], Any], operand: Evaluate) -> Evaluate:
    def evaluate(r: Row, s: Row) -> Any:
        value = operand(r, s)
        return None if value is None else apply(value)

    return evaluate


def _binary_evaluator(apply: Callable[[Any, Any], Any], left: Evaluate, right: Evaluate) -> Evaluate:
    def evaluate(r: Row, s: Row) -> Any:
        a, b = left(r, s), right(r, s)
        if a is None or b is None:
            return None
        if isinstance(a, float) or isinstance(b, float):
            return _not_nan(apply(to_double(a), to_double(b)))
        return apply(a, b)

    return evaluate


def condition(tree: Condition) -> Holds:
    """Returns the function that checks whether a condition is true (not false, not unknown) for two rows."""
    if isinstance(tree, Junction):
        parts = [condition(part) for part in tree.parts]
        combine = all if tree.op == "AND" else any
        return lambda r, s: combine(part(r, s) for part in parts)
    return _term(tree)


def _term(tree: Comparison) -> Holds:
    compare, a_of, b_of = COMPARISONS[tree.op], evaluator(tree.left), evaluator(tree.right)
    a_is_decimal = isinstance(tree.left, Literal) and tree.left.decimal
    b_is_decimal = isinstance(tree.right, Literal) and tree.right.decimal

    def holds(r: Row, s: Row) -> bool:
        a, b = a_of(r, s), b_of(r, s)
        if a is None or b is None:
            return False
        if a_is_decimal and isinstance(b, float):
            a = to_double(a)
        if b_is_decimal and isinstance(a, float):
            b = to_double(b)
        return compare(a, b)

    return holds


def columns(tree: Condition | Expression) -> set[Column]:
    """Returns all columns of a condition or an expression."""
    match tree:
        case Column():
            return {tree}
        case Literal():
            return set()
        case Comparison(_, left, right):
            return columns(left) | columns(right)
        case Junction(_, parts) | Call(_, parts):
            return {column for part in parts for column in columns(part)}


def terms(tree: Condition) -> list[Comparison]:
    """Returns all comparisons of a condition."""
    return [tree] if isinstance(tree, Comparison) else [term for part in tree.parts for term in terms(part)]


def key_columns(tree: Condition) -> set[Column]:
    """Returns the columns of the terms that relate r and s. A row with a null or NaN in one has a null key."""
    two_sided = [term for term in terms(tree) if {column.side for column in columns(term)} == {"r", "s"}]
    if not two_sided:
        raise SyntaxError("no term relates r and s")
    return {column for term in two_sided for column in columns(term)}


# --- Windows --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowWindow:
    """r's window holds `r` rows and s's window `s` rows."""

    r: int
    s: int


@dataclass(frozen=True)
class TimeWindow:
    """`-before <= r.ts - s.ts <= after`, in nanoseconds, or in ticks for integer time columns."""

    before: int
    after: int


Window = RowWindow | TimeWindow


def duration(text: str | int) -> int:
    """Returns the nanoseconds of `10 minutes`; 1000 for `"1000"` or 1000 (integer time columns)."""
    halves = str(text).split()
    return int(halves[0]) if len(halves) == 1 else interval(halves[0], halves[1]).ns


def parse_window(window: str | tuple[str, str] | Window) -> Window:
    """`"5 rows"`, `"10 minutes"`, `"1000"`, or a pair of them; a parsed window is returned unchanged."""
    if isinstance(window, (RowWindow, TimeWindow)):
        return window
    first, second = (window, window) if isinstance(window, str) else window
    if first.split()[-1] in ("row", "rows"):
        return RowWindow(int(first.split()[0]), int(second.split()[0]))
    return TimeWindow(duration(first), duration(second))


# --- The join over windows ------------------------------------------------------------------------

Source = tuple[str, int]  # (side, number): compares as the contract orders sources, since "r" < "s"
Pair = tuple[int, int, int, int]  # r_source, r_seq, s_source, s_seq
Count = tuple[str, int, int, int]  # side, source, seq, pairs completed


@dataclass
class Tuple:
    """A row that was not dropped. Without time, `ts` is 0 for all."""

    ts: int
    side: str
    source: int
    seq: int
    row: Row
    position: int = -1  # its number among the taken tuples of its side
    met: int = -1  # how many tuples of the other side were taken before it

    @property
    def order(self) -> tuple[int, str, int, int]:
        return (self.ts, self.side, self.source, self.seq)


class WindowJoin:
    """`mr.WindowJoin` over Python rows. Every call returns the pairs it completes, in the contract's order.

    After a call, `counts` has one entry for each tuple that the call took (`output="count"`). `tick` is one tick of the
    finer of the two time columns, in nanoseconds (1 for integers); `flush` needs it. `stats["null_keys"]` counts every
    pushed row with a null key, dropped rows included; in a self-join a row counts once, for either of its roles.
    """

    def __init__(
        self,
        on: str,
        window: str | tuple[str, str] | Window,
        time: str | tuple[str, str] | None = None,
        lateness: str | int = 0,
        sources: Mapping[str, int] | None = None,
        self_join: bool = False,
        tick: int = 1,
    ) -> None:
        tree = Parser(on).parse()
        self.holds = condition(tree)
        self.window = parse_window(window)
        self._self_join = self_join
        self._keys = self._key_names(tree)
        names = (time, time) if isinstance(time, str) else time
        self._time = None if names is None else {"r": names[0], "s": names[1]}
        self._lateness = duration(lateness)
        self._tick = tick
        numbers = {"r": 1, "s": 1} | dict(sources or {})
        sides = "r" if self_join else "rs"
        self._seqs: dict[Source, int] = {(side, i): 0 for side in sides for i in range(numbers[side])}
        self._high: dict[Source, int] = {}  # largest timestamp pushed or advanced to
        self._floor: int | None = None  # minimum of every clock since the last flush
        self._pending: list[Tuple] = []  # in order, not yet taken
        stream: list[Tuple] = []
        self.taken: dict[str, list[Tuple]] = {"r": stream, "s": stream if self_join else []}
        self.counts: list[Count] = []
        self._late = self._null_times = self._null_keys = self._pairs = 0
        self._closed = False

    def _key_names(self, tree: Condition) -> dict[str, set[str]]:
        keys = key_columns(tree)
        if self._self_join:
            return {"r": {column.name for column in keys}}
        return {side: {column.name for column in keys if column.side == side} for side in "rs"}

    def push(self, side: str, rows: Iterable[Row], source: int = 0) -> list[Pair]:
        self._begin()
        return [pair for row in rows for pair in self._push_row((side, source), row)]

    def push_both(self, r_rows: Iterable[Row], s_rows: Iterable[Row], arrival: Iterable[int]) -> list[Pair]:
        self._begin()
        feeds = (("r", iter(r_rows)), ("s", iter(s_rows)))
        order = (feeds[which] for which in arrival)
        return [pair for side, rows in order for pair in self._push_row((side, 0), next(rows))]

    def advance(self, side: str, ts: Value, source: int = 0) -> list[Pair]:
        self._begin()
        self._raise_clock((side, source), _ticks(ts))
        return self._take_ready()

    def flush(self) -> list[Pair]:
        """Moves every clock one tick past the newest timestamp any source has pushed or been advanced to."""
        self._begin()
        if self._high:
            self._floor = max(self._high.values()) + self._tick
        return self._take_ready()

    def close(self) -> list[Pair]:
        pairs = self.flush()
        self._closed = True
        return pairs

    @property
    def stats(self) -> dict[str, Any]:
        rows = {side: sum(n for (of, _), n in self._seqs.items() if of == side) for side in "rs"}
        return {
            "rows": rows,
            "late": self._late,
            "null_times": self._null_times,
            "null_keys": self._null_keys,
            "pending": len(self._pending),
            "held": self._held(),
            "pairs": self._pairs,
        }

    def _begin(self) -> None:
        if self._closed:
            raise RuntimeError("closed")
        self.counts = []

    def clock(self, source: Source) -> int | None:
        """Returns None before the source has pushed or been advanced."""
        readings = [self._high[source] - self._lateness] if source in self._high else []
        if self._floor is not None:
            readings.append(self._floor)
        return max(readings, default=None)

    def _raise_clock(self, source: Source, ts: int) -> None:
        self._high[source] = max(ts, self._high.get(source, ts))

    def _push_row(self, source: Source, row: Row) -> list[Pair]:
        side, number = source
        seq = self._seqs[source]
        self._seqs[source] += 1
        self._null_keys += any(_not_nan(row[name]) is None for name in self._keys[side])
        if self._time is None:
            return self._take(Tuple(0, side, number, seq, row))
        time = row[self._time[side]]
        if time is None:
            self._null_times += 1
            return []
        ts, clock = _ticks(time), self.clock(source)
        if clock is not None and ts < clock:
            self._late += 1
            return []
        self._raise_clock(source, ts)
        insort(self._pending, Tuple(ts, side, number, seq, row), key=lambda waiting: waiting.order)
        return self._take_ready()

    def _ready(self, waiting: Tuple) -> bool:
        """Returns whether no source can still deliver an earlier row."""
        me = (waiting.side, waiting.source)
        for source in self._seqs:
            clock = self.clock(source)
            if clock is None or not (clock > waiting.ts or (clock == waiting.ts and source >= me)):
                return False
        return True

    def _take_ready(self) -> list[Pair]:
        pairs: list[Pair] = []
        while self._pending and self._ready(self._pending[0]):
            pairs += self._take(self._pending.pop(0))
        return pairs

    def _take(self, new: Tuple) -> list[Pair]:
        """Returns the pairs of a tuple with the tuples taken before it, in the order of the partners."""
        mine, others = self.taken[new.side], self.taken["r" if new.side == "s" else "s"]
        new.position, new.met = len(mine), len(others)
        pairs = []
        for partner in others:
            for r, s in self._roles(new, partner):
                if self._in_window(r, s, new) and self.holds(r.row, s.row):
                    pairs.append((r.source, r.seq, s.source, s.seq))
        mine.append(new)
        self._pairs += len(pairs)
        self.counts.append((new.side, new.source, new.seq, len(pairs)))
        return pairs

    def _roles(self, new: Tuple, partner: Tuple) -> list[tuple[Tuple, Tuple]]:
        """Returns which tuple is r and which is s; in a self-join both ways, first with the new tuple as r."""
        if self._self_join:
            return [(new, partner), (partner, new)]
        return [(new, partner)] if new.side == "r" else [(partner, new)]

    def _in_window(self, r: Tuple, s: Tuple, new: Tuple) -> bool:
        if isinstance(self.window, TimeWindow):
            return -self.window.before <= r.ts - s.ts <= self.window.after
        partner, size = (s, self.window.s) if r is new else (r, self.window.r)
        return new.met - partner.position <= size  # 1 for the partner that was taken last

    def _held(self) -> int:
        if isinstance(self.window, TimeWindow):
            return self._held_by_time(self.window)
        if self._self_join:
            return min(max(self.window.r, self.window.s), len(self.taken["r"]))
        return min(self.window.r, len(self.taken["r"])) + min(self.window.s, len(self.taken["s"]))

    def _held_by_time(self, window: TimeWindow) -> int:
        """Returns the number of taken rows that a row which is not late could still match."""
        clocks = [self.clock(source) for source in self._seqs]
        if None in clocks:
            return len(self.taken["r"]) + (0 if self._self_join else len(self.taken["s"]))
        frontier = min(clock for clock in clocks if clock is not None)
        if self._self_join:
            longest = max(window.before, window.after)
            return sum(t.ts + longest >= frontier for t in self.taken["r"])
        held_r = sum(t.ts + window.before >= frontier for t in self.taken["r"])
        return held_r + sum(t.ts + window.after >= frontier for t in self.taken["s"])


def _ticks(value: Any) -> int:
    return value.ns if isinstance(value, Instant) else int(value)


# --- The join of two tables -----------------------------------------------------------------------


def matches(r_rows: Sequence[Row], s_rows: Sequence[Row], on: str) -> list[list[int]]:
    """Returns, for each row of r, the numbers of the matching rows of s."""
    holds = condition(Parser(on).parse())
    return [[seq for seq, s in enumerate(s_rows) if holds(r, s)] for r in r_rows]


def join(r_rows: Sequence[Row], s_rows: Sequence[Row], on: str, how: str = "inner") -> list[tuple[int, int | None]]:
    """`mr.join` as `(r_seq, s_seq)`; `s_seq` is None for rows of r without s columns (left, semi, anti)."""
    found: list[tuple[int, int | None]] = []
    for r_seq, partners in enumerate(matches(r_rows, s_rows, on)):
        if how in ("inner", "left"):
            found += [(r_seq, s_seq) for s_seq in partners]
        if (how == "semi" and partners) or (how in ("left", "anti") and not partners):
            found.append((r_seq, None))
    return found
