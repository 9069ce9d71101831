"""Random conditions over the full grammar of the contract, with columns whose values make them match.

A condition belongs to a *family*, which decides what an index can do with it. Keys are points on an *axis*: evenly
spaced points that the columns of both sides share, point k is `origin + k * step`. Distances in the text are counted
in steps too, so that matches, near misses and ties are frequent for all types.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from random import Random

from tests.conformance.kinds import KINDS, Kind, Raw
from tests.oracle import UNIT_NS

Number = int | float


@dataclass(frozen=True)
class Axis:
    """Points shared by the columns of both sides; in ticks, or in nanoseconds for times."""

    kinds: dict[str, Kind]
    origin: int
    step: Number
    span: int

    @property
    def is_temporal(self) -> bool:
        return self.kinds["r"].is_temporal

    @property
    def is_integer(self) -> bool:
        return all(kind.is_integer for kind in self.kinds.values())

    def raw(self, side: str, k: int, extra: int = 0) -> Raw:
        """Returns point k (plus `extra`) as a column of that side stores it."""
        kind = self.kinds[side]
        value = self.origin + k * self.step + extra
        return kind.store(int(value) // kind.unit if kind.is_temporal else value)


def make_axis(rng: Random, kinds: tuple[str, str], span: int, at_zero: bool) -> Axis:
    """Returns an axis for two kinds; `at_zero` if the condition has coefficients and matches only near zero."""
    of = {"r": KINDS[kinds[0]], "s": KINDS[kinds[1]]}
    if of["r"].value is not None:
        return Axis(of, 0, 1, span)
    if of["r"].is_temporal:
        return _temporal_axis(rng, of, span)
    if all(kind.is_integer for kind in of.values()):
        return Axis(of, 0 if at_zero else _integer_origin(rng, of, span), 1, span)
    steps: list[Number] = [1, 0.5, 0.25] if any(kind.is_integer for kind in of.values()) else [1, 0.5, 0.1, 1e-3, 1e18]
    origins = [0] if at_zero else [0, 0, 0, 1, 100, 2**24 - 5, 2**53 - 5]
    if not at_zero and all(not kind.is_integer or kind.low < -1000 for kind in of.values()):
        origins.append(-(span // 2))
    return Axis(of, rng.choice(origins), rng.choice(steps), span)


def _integer_origin(rng: Random, kinds: dict[str, Kind], span: int) -> int:
    low, high = max(kind.low for kind in kinds.values()), min(kind.high for kind in kinds.values())
    wanted = [0, 0, 0, -(span // 2), 1000, 2**31 - 5, 2**53, 2**62, low, high - span, high - span // 2]
    return rng.choice([origin for origin in wanted if low <= origin <= high])


def _temporal_axis(rng: Random, kinds: dict[str, Kind], span: int) -> Axis:
    coarse = max(kind.unit * kind.step for kind in kinds.values())
    fine = min(kind.unit * kind.step for kind in kinds.values())
    step = coarse * rng.choice((1, 1, 1, 7))
    if coarse > fine and rng.random() < 0.3:
        step = max(fine, coarse // 4)
    day = rng.choice((-1, 0, 10957, 19843, 19843))  # around 1970, 2000 and a day in 2024
    return Axis(kinds, day * 86400 * 10**9, step, span)


@dataclass(frozen=True)
class ColumnPlan:
    """A column of the condition: point `k + shift` of its axis; k is drawn for each row."""

    axis: str
    shift: int = 0


@dataclass
class Draft:
    """A condition being written: axes `x` and `y`, `t` for values without an order, and the columns used so far."""

    rng: Random
    axes: dict[str, Axis]
    names: dict[str, dict[str, str]]  # side -> role ("x", "y", "t", "lo", "hi") -> name
    columns: dict[str, dict[str, ColumnPlan]] = field(default_factory=lambda: {"r": {}, "s": {}})

    def column(self, side: str, role: str, shift: int = 0) -> str:
        name = self.names[side][role]
        self.columns[side][name] = ColumnPlan(role if role in ("y", "t") else "x", shift)
        return f"{side}.{quoted(name)}"

    def distance(self, k: int, axis: str = "x") -> str:
        """Returns a literal that is k steps long; k may be negative."""
        on = self.axes[axis]
        if on.is_temporal:
            sign = "-" if k < 0 else ""
            return sign + interval_text(self.rng, abs(k) * int(on.step))
        return self.number(k * on.step, on.is_integer)

    def number(self, value: Number, exact: bool) -> str:
        if not exact or isinstance(value, float):
            short = round(value, 6) if abs(value) < 1e9 else value
            return str(short) if self.rng.random() < 0.8 else f"{value:.17g}"
        shape = self.rng.random()
        if shape < 0.85:
            return str(value)
        return f"{value}.0" if shape < 0.9 else f"{value}.5" if shape < 0.95 else f"{value}e0"

    def shifted(self, expression: str, k: int, axis: str = "x") -> str:
        """Returns the expression plus k steps."""
        if k == 0 and self.rng.random() < 0.8:
            return expression
        return f"{expression} {'-' if k < 0 else '+'} {self.distance(abs(k), axis)}"

    def either(self, role: str = "x") -> tuple[str, str]:
        """Returns the columns of the two sides, in random order."""
        pair = [self.column("r", role), self.column("s", role)]
        self.rng.shuffle(pair)
        return pair[0], pair[1]

    def width(self) -> int:
        return self.rng.choice((0, 1, 1, 2, 3, max(1, self.axes["x"].span // 8)))

    def factor(self) -> str:
        return self.rng.choice(("1", "2", "3", "-1", "-2", "0.5", "2.5", "10"))


# --- Families ------------------------------------------------------------------------------------


def equality(d: Draft) -> str:
    a, b = d.either()
    c = d.rng.choice((0, 0, 1, -1, 3))
    forms = [
        f"{a} = {b}",
        f"{a} = {b}",
        f"{a} = {d.shifted(b, c)}",
        f"{d.shifted(a, c)} = {b}",
        f"{a} - {b} = {d.distance(c)}",
    ]
    if not d.axes["x"].is_temporal:
        forms += [f"-{a} = -{b}", f"2 * {a} = 2 * ({d.shifted(b, c)})"]
    return d.rng.choice(forms)


def band(d: Draft) -> str:
    a, b = d.either()
    e, c = d.distance(d.width()), d.rng.choice((0, 2, -2))
    if not d.axes["x"].is_temporal and d.rng.random() < 0.05:
        e = "100000000000000000000000"
    forms = [
        f"abs({a} - {b}) <= {e}",
        f"abs({a} - {b}) <= {e}",
        f"ABS({a} - {b}) < {e}",
        f"{e} >= abs({a} - {b})",
        f"abs({a} - ({d.shifted(b, c)})) <= {e}",
    ]
    return d.rng.choice(forms)


def asymmetric(d: Draft) -> str:
    a, b = d.either()
    low, high = sorted((d.rng.randrange(-4, 3), d.width()))
    below, above = d.rng.choice((">", ">=")), d.rng.choice(("<", "<="))
    return d.rng.choice(
        (
            f"{a} BETWEEN {d.shifted(b, low)} AND {d.shifted(b, high)}",
            f"{a} - {b} BETWEEN {d.distance(low)} AND {d.distance(high)}",
            f"{a} {below} {d.shifted(b, low)} AND {a} {above} {d.shifted(b, high)}",
            f"{a} - {b} {below} {d.distance(low)} AND {a} - {b} {above} {d.distance(high)}",
            f"{d.shifted(b, low)} <= {a} AND {a} {above} {d.shifted(b, high)}",
        )
    )


def between_columns(d: Draft) -> str:
    inner, outer = d.rng.sample(("r", "s"), 2)
    low, high = d.column(outer, "lo", -d.rng.randrange(4)), d.column(outer, "hi", d.width())
    x = d.column(inner, "x")
    if d.rng.random() < 0.2:
        return f"{x} > {low} AND {x} < {high}"
    return f"{d.shifted(x, d.rng.choice((0, 0, 1)))} BETWEEN {low} AND {high}"


def multi_band(d: Draft) -> str:
    a, b = d.either()
    parts = []
    for _ in range(d.rng.choice((2, 2, 3))):
        center, width = d.rng.randrange(-8, 9), d.width()
        low, high = center - d.rng.randrange(3), center + width
        parts.append(
            d.rng.choice(
                (
                    f"abs({a} - {b}) <= {d.distance(abs(center))}",
                    f"{a} BETWEEN {d.shifted(b, low)} AND {d.shifted(b, high)}",
                    f"{a} - {b} BETWEEN {d.distance(low)} AND {d.distance(high)}",
                    f"({a} >= {d.shifted(b, low)} AND {a} < {d.shifted(b, high)})",
                )
            )
        )
        if d.rng.random() < 0.3:
            parts[-1] += f" AND {one_sided(d, 'x')}"  # filters its own band, not the others
    return " OR ".join(parts)


def inequality(d: Draft) -> str:
    a, b = d.either()
    op = d.rng.choice(("<", "<=", ">", ">="))
    c = d.rng.choice((0, 0, 1, -2))
    return d.rng.choice((f"{a} {op} {d.shifted(b, c)}", f"{a} - {b} {op} {d.distance(c)}"))


def two_inequalities(d: Draft) -> str:
    x, y = d.rng.choice(("<", "<=", ">", ">=")), d.rng.choice(("<", "<=", ">", ">="))
    first = f"{d.column('r', 'x')} {x} {d.shifted(d.column('s', 'x'), d.rng.choice((0, 0, 1)))}"
    second = f"{d.shifted(d.column('r', 'y'), d.rng.choice((0, 0, -1)), 'y')} {y} {d.column('s', 'y')}"
    return f"{first} AND {second}"


def not_equal(d: Draft) -> str:
    a, b = d.either()
    return f"{a} <> {d.shifted(b, d.rng.choice((0, 0, 1)))}"


def outside(d: Draft) -> str:
    a, b = d.either()
    return f"abs({a} - {b}) {d.rng.choice(('>', '>=', '<>', '='))} {d.distance(d.width() + 1)}"


def linear(d: Draft) -> str:
    """Coefficients on both sides."""
    a, b = d.either()
    c = d.distance(d.rng.randrange(-3, 4))
    op = d.rng.choice(("=", "<", "<=", ">", ">="))
    left, right = f"{d.factor()} * {a}", f"{b} * {d.factor()}"
    if d.rng.random() < 0.4:
        return f"abs({left} - {right}) <= {d.distance(3)}"
    return d.rng.choice((f"{left} {op} {right} + {c}", f"{left} - {c} {op} {right}", f"-({left} + {c}) {op} {right}"))


def sums(d: Draft) -> str:
    """Several columns of one side in one expression, and abs of one column."""
    rx, sx, ry = d.column("r", "x"), d.column("s", "x"), d.column("r", "y")
    op = d.rng.choice(("=", "<=", ">", "<>"))
    forms = [
        f"{rx} + {ry} {op} {sx}",
        f"{rx} - {ry} {op} {sx} - {d.column('s', 'y')}",
        f"abs({rx}) {op} abs({sx}) + {ry}",
        f"abs({rx} - {sx} + {ry}) <= {d.distance(2)}",
        f"{sx} BETWEEN {rx} - abs({ry}) AND {rx} + abs({ry})",
    ]
    return d.rng.choice(forms)


def product(d: Draft) -> str:
    """Columns of both sides multiplied: no index can convert this to a range."""
    rx, sx = d.column("r", "x"), d.column("s", "x")
    axis = d.axes["x"]
    limit = d.number(
        round(axis.step**2 * (axis.span / 2) ** 2, 3) if not axis.is_integer else axis.span, axis.is_integer
    )
    op = d.rng.choice(("<=", "<", ">", ">=", "=", "<>"))
    return d.rng.choice((f"{rx} * {sx} {op} {limit}", f"{rx} * {sx} - {d.column('r', 'y')} {op} {limit}"))


def conjunction(d: Draft) -> str:
    """A term that an index searches, and another that filters its matches."""
    first = d.rng.choice((equality, band, asymmetric, inequality))(d)
    ry, sy = d.column("r", "y"), d.column("s", "y")
    second = d.rng.choice(
        (
            f"{ry} <= {sy}",
            f"{ry} <> {sy}",
            f"{sy} > {ry}",
            f"abs({ry} - {sy}) <= {d.distance(d.axes['y'].span // 2, 'y')}",
        )
    )
    return d.rng.choice((f"{first} AND {second}", f"{second} AND {first}"))


def grouped(d: Draft) -> str:
    """Equalities that form groups, with one or two order terms in them."""
    same = "{} = {}".format(*d.either("y"))
    groups = d.rng.choice((lambda: [code_equality(d)], lambda: [same], lambda: [same, code_equality(d)]))()
    orders = [d.rng.choice((band, asymmetric, inequality, inequality, between_columns))(d)]
    if d.rng.random() < 0.5:
        orders.append(f"{d.column('r', 'y')} {d.rng.choice(('<', '<=', '>', '>=', '<>'))} {d.column('s', 'y')}")
    parts = groups + orders
    d.rng.shuffle(parts)
    return " AND ".join(parts)


def two_orders(d: Draft) -> str:
    """Two terms that bound two columns of each side: any mixture of inequalities and bands."""
    first = d.rng.choice((band, asymmetric, inequality))(d)
    ry, sy = d.column("r", "y"), d.column("s", "y")
    distance, op = d.distance(d.axes["y"].span // 2, "y"), d.rng.choice(("<", "<=", ">", ">="))
    second = d.rng.choice((f"{ry} {op} {sy}", f"{sy} - {ry} {op} {distance}", f"abs({ry} - {sy}) < {distance}"))
    return d.rng.choice((f"{first} AND {second}", f"{second} AND {first}"))


def code_equality(d: Draft) -> str:
    """An equality of text, binary, booleans or decimals."""
    return "{} = {}".format(*d.either("t"))


def code_difference(d: Draft) -> str:
    return "{} <> {}".format(*d.either("t"))


def code_conjunction(d: Draft) -> str:
    """A term over values without an order beside one over numbers or times; either may be the one that is searched."""
    first = d.rng.choice((equality, band, asymmetric, inequality, not_equal))(d)
    second = d.rng.choice((code_equality, code_equality, code_difference))(d)
    return d.rng.choice((f"{first} AND {second}", f"{second} AND {first}"))


def code_union(d: Draft) -> str:
    """An OR of equalities, each with its own filter."""
    same = code_equality(d)
    return " OR ".join(f"{same} AND {code_filter(d)}" for _ in range(d.rng.choice((2, 3))))


def code_filter(d: Draft) -> str:
    """Returns a term that compares a column of text, binary, booleans or decimals with a literal."""
    side = d.rng.choice(("r", "s"))
    kind, x = d.axes["t"].kinds[side], d.column(side, "t")
    literal = kind.literal(d.rng.randrange(d.axes["t"].span))
    if d.rng.random() < 0.1:
        literal = kind.literal(10**4)  # no row has it
    elif isinstance(kind.known(0), Fraction) and d.rng.random() < 0.1:
        literal += "1"  # beyond the scale: equals no value
    op = d.rng.choice(("=", "<>", "<>"))
    return d.rng.choice((f"{x} {op} {literal}", f"{literal} {op} {x}"))


FAMILIES: dict[str, Callable[[Draft], str]] = {
    "equality": equality,
    "band": band,
    "asymmetric": asymmetric,
    "between columns": between_columns,
    "multi-band": multi_band,
    "inequality": inequality,
    "two inequalities": two_inequalities,
    "not equal": not_equal,
    "outside": outside,
    "linear": linear,
    "sums": sums,
    "product": product,
    "conjunction": conjunction,
    "grouped": grouped,
    "two orders": two_orders,
    "code equality": code_equality,
    "code difference": code_difference,
    "code conjunction": code_conjunction,
    "code union": code_union,
}
NUMBERS_ONLY = frozenset({"linear", "sums", "product"})
NO_FILTER = frozenset(
    {"multi-band", "code union"}
)  # a term next to an OR is not in the grammar; its bands have their own
WEIGHTED_FAMILIES: list[str] = [
    *["equality", "band", "asymmetric"] * 3,
    *["between columns", "multi-band", "inequality", "two inequalities", "linear", "conjunction", "grouped"] * 2,
    *["two orders"] * 2,
    *["code equality", "code conjunction"] * 2,
    *["not equal", "sums", "outside", "product", "code difference", "code union"],
]


def write_condition(d: Draft, family: str, filters: int) -> str:
    """Returns the text of a condition; `filters` one-sided terms are added before or after it."""
    text = FAMILIES[family](d)
    if family in NO_FILTER:
        return text
    for _ in range(filters):
        extra = code_filter(d) if d.rng.random() < 0.3 else one_sided(d)
        text = d.rng.choice((f"{text} AND {extra}", f"{extra} AND {text}"))
    return text


def one_sided(d: Draft, role: str | None = None) -> str:
    """Returns a term over one side, true for about two rows in three."""
    side, role = d.rng.choice(("r", "s")), role or d.rng.choice(("x", "y"))
    axis, x = d.axes[role], d.column(side, role)
    low, middle, high = (axis.origin + axis.span * tenths // 10 * axis.step for tenths in (1, 6, 9))
    if axis.is_temporal:
        zoned = axis.kinds[side].zoned
        first, second, third = (instant_text(d.rng, int(ns), zoned) for ns in (low, middle, high))
    else:
        first, second, third = (d.number(value, axis.kinds[side].is_integer) for value in (low, middle, high))
    forms = [
        f"{x} > {first}",
        f"{x} <= {second}",
        f"{x} BETWEEN {first} AND {third}",
        f"{x} <> {second}",
        f"{third} > {x}",
    ]
    if not axis.is_temporal:
        forms += [f"2 * {x} >= {first}", f"abs({x}) <> {second}"]
    return d.rng.choice(forms)


# --- Text ----------------------------------------------------------------------------------------


def quoted(name: str) -> str:
    return name if re.fullmatch(r"[a-z_]+", name) and name != "select" else '"' + name.replace('"', '""') + '"'


def time_units(ns: int) -> list[tuple[int, str]]:
    """Returns all ways to write a duration as an integer number of a unit."""
    return [(ns // size, unit) for unit, size in UNIT_NS.items() if ns % size == 0]


def interval_text(rng: Random, ns: int) -> str:
    count, unit = rng.choice(time_units(ns))
    return rng.choice((f"INTERVAL '{count}' {unit.upper()}", f"INTERVAL '{count} {unit}s'"))


def instant_text(rng: Random, ns: int, zoned: bool) -> str:
    seconds, fraction = divmod(ns, 10**9)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    if not zoned and ns % (86400 * 10**9) == 0 and rng.random() < 0.5:
        return f"DATE '{moment:%Y-%m-%d}'"
    digits = f".{fraction:09d}".rstrip("0") if fraction else ""
    return f"TIMESTAMP '{moment:%Y-%m-%d %H:%M:%S}{digits}{'+00:00' if zoned else ''}'"
