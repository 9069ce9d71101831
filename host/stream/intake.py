"""Reads one side's input tables: finds the columns, checks their types, and converts rows to `Tuples`.

An intake needs only the schema of its own side, so a side can be read before the schema of the other side is known.
`bind` in `expr/plan.py` checks what depends on both sides (comparisons of r's columns with s's). Text, binary, booleans
and decimals become codes; both sides of a join share one table of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millrace.host.base.codes import CodeTable
from millrace.host.base.errors import SchemaError
from millrace.host.base.types import Array, Longs, Mask, Side
from millrace.host.base.value_class import value_class
from millrace.host.base.words import KeyType, constant, key_type, mask_and, native, true_mask
from millrace.host.data.timescale import TimeScale
from millrace.host.data.tuples import Tuples
from millrace.host.expr import evaluate as ev
from millrace.host.expr.code_terms import check_term, check_use, with_code
from millrace.host.expr.condition import Comparison, Condition, columns_of, sides_of
from millrace.host.expr.plan import column_type

Cells = dict[str, tuple[Array, Mask]]
"""Converted columns by name: their values, and which of them are usable."""


@dataclass(frozen=True)
class Intake:
    """Schema, types and filters of one side. `keys`: the columns of terms that relate both sides.

    In a self-join, `as_s` is the intake of the role s: each column is converted once for both roles.
    """

    side: Side
    schema: pa.Schema
    types: dict[tuple[Side, str], KeyType]
    filters: tuple[Comparison, ...]
    keys: frozenset[str]
    time: tuple[str, KeyType] | None
    codes: CodeTable
    as_s: Intake | None = None

    @property
    def code_columns(self) -> frozenset[str]:
        """The columns that are read as codes, in a self-join those of both roles."""
        own = frozenset(name for (_, name), kind in self.types.items() if kind.domain == "code")
        return own if self.as_s is None else own | self.as_s.code_columns

    def read(self, table: pa.Table, seq: Longs, source: int | Array, scale: TimeScale) -> Reading:
        """Convert all rows to tuples, with masks of the rows that have no null key and no null time."""
        rows = table.num_rows
        cells: Cells = {}
        live, known_keys = self._live(table, cells)
        live_as_s = None
        if self.as_s is not None:
            live_as_s, known_as_s = self.as_s._live(table, cells)
            known_keys = mask_and(known_keys, known_as_s)
        columns = {name: values for name, (values, _) in cells.items()}
        time, known = self._times(table, scale, cells)
        sources = constant(source, rows, np.int32) if isinstance(source, int) else source
        return Reading(Tuples(seq, sources, time, live, columns, table, live_as_s), known_keys, known)

    def _live(self, table: pa.Table, cells: Cells) -> tuple[Mask, Mask]:
        """Convert the columns that are not in `cells` yet; return which rows can match, and which have all keys."""
        live = known_keys = true_mask(table.num_rows)
        for (_, name), kind in self.types.items():
            if name not in cells:
                convert = self.codes.encode if kind.domain == "code" else native
                cells[name] = convert(table.column(name), kind)
            valid = cells[name][1]
            live = mask_and(live, valid)
            if name in self.keys:
                known_keys = mask_and(known_keys, valid)
        return self._filtered(cells, live), known_keys

    def _filtered(self, cells: Cells, live: Mask) -> Mask:
        """Apply the one-sided terms, only to rows without a null operand."""
        if not self.filters:
            return live
        usable = np.flatnonzero(live)
        some = {(self.side, name): cells[name][0][usable] for _, name in self.types}
        keep = np.zeros(len(live), np.bool_)
        passed = np.ones(len(usable), np.bool_)
        for term in self.filters:
            passed &= ev.holds(term, some, self.types, len(usable))
        keep[usable] = passed
        return keep

    def _times(self, table: pa.Table, scale: TimeScale, cells: Cells) -> tuple[Longs, Mask]:
        if self.time is None:
            return constant(0, table.num_rows), true_mask(table.num_rows)
        name, kind = self.time
        values, known = cells[name] if name in cells else native(table.column(name), kind)
        return scale.times(values, kind, f"{self.side}.{name}"), known


@value_class
class Reading:
    """The rows of one table as tuples, and masks of the rows without a null key or a null time."""

    tuples: Tuples
    known_keys: Mask
    known_time: Mask


def make_intake(side: Side, condition: Condition, schema: pa.Schema, time: str | None, codes: CodeTable) -> Intake:
    """Find the columns that the condition and the time argument name, and check what concerns only this side.

    `codes` is the join's table, the same for both sides and for `bind`.
    """
    types = {(side, name): column_type(side, name, schema) for name in condition.columns(side)}
    single = len(condition.bands) == 1
    for term in condition.comparisons():
        check_use(term, types)
    filters = tuple(t for t in condition.comparisons() if single and sides_of(t) == {side})
    for term in filters:
        check_term(term, types, condition.text)
    filters = tuple(with_code(term, types, codes) for term in filters)
    keys = {c.name for t in condition.comparisons() if len(sides_of(t)) == 2 for c in columns_of(t) if c.side == side}
    timed = None if time is None else (time, time_type(side, time, schema))
    return Intake(side, schema, types, filters, frozenset(keys), timed, codes)


def time_type(owner: str, name: str, schema: pa.Schema) -> KeyType:
    """The type of the time column of a side or source; raises a `SchemaError` if it is missing or not a time."""
    if name not in schema.names:
        raise SchemaError(f"time={name!r}, but {owner} has no such column; its columns are {', '.join(schema.names)}")
    data_type = schema.field(name).type
    if not (pa.types.is_timestamp(data_type) or pa.types.is_date(data_type) or pa.types.is_integer(data_type)):
        raise SchemaError(
            f"the time column {owner}.{name} is {data_type}; allowed are timestamps, dates and integers: cast it first"
        )
    return key_type(f"{owner}.{name}", data_type)
