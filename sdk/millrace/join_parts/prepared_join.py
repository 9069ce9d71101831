"""What `mr.join` prepares before it reads rows: parsed arguments, the bound condition, the output's schema.

Recent ones are kept by arguments and schemas, so that a loop of small joins parses and plans once. Not kept are those
with codes (text keys and the like), whose table of codes grows with the values of a call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millrace.host.base.types import SIDES, Side
from millrace.host.expr.condition import Condition
from millrace.ingest.arguments import Engine, parse_condition, parse_engine
from millrace.ingest.checks import choice, integer_at_least
from millrace.ingest.choices import HOWS, OUTPUTS
from millrace.ingest.tables import as_table, without_empty_chunks
from millrace.join_parts.bound_tables import BoundTables
from millrace.join_parts.table_result import result_schema

MAX_KEPT = 64


@dataclass(frozen=True)
class TableArguments:
    """The parsed arguments of `mr.join`, besides the tables."""

    condition: Condition
    how: str
    output: str
    engine: Engine
    batch_rows: int | None

    @staticmethod
    def of(
        on: Any,
        how: Any,
        index: Any,
        device: Any,
        threads: Any,
        output: Any,
        fallback: Any,
        options: Any,
        batch_rows: Any,
    ) -> TableArguments:
        """Check all arguments; a bad one raises an `ArgumentError`."""
        condition = parse_condition(on)
        choice("how", how, HOWS)
        choice("output", output, OUTPUTS)
        counting = output == "count" or how in ("semi", "anti")
        engine = parse_engine(condition, index, device, threads, fallback, counting, options)
        rows = None if batch_rows is None else integer_at_least("batch_rows", batch_rows, 1)
        return TableArguments(condition, how, output, engine, rows)


@dataclass(frozen=True)
class PreparedJoin:
    """A join of two tables with these schemas."""

    args: TableArguments
    schemas: dict[Side, pa.Schema]
    bound: BoundTables
    schema: pa.Schema

    def fits(self, side: Side, given: Any) -> bool:
        """Whether a table has exactly the schema of its side, so that it needs no further check."""
        return type(given) is pa.Table and given.schema.equals(self.schemas[side], check_metadata=True)


_kept: dict[tuple[Any, ...], PreparedJoin] = {}


def prepare(r: Any, s: Any, *given: Any) -> tuple[PreparedJoin, dict[Side, pa.Table]]:
    """Check all arguments, those of `TableArguments.of`, and both tables; return the tables in Arrow."""
    key = _key(given)
    found = None if key is None else _kept.get(key)
    if found is not None and found.fits("r", r) and found.fits("s", s):
        return found, {"r": without_empty_chunks(r), "s": without_empty_chunks(s)}
    args = TableArguments.of(*given)
    tables: dict[Side, pa.Table] = {"r": as_table(r, "r"), "s": as_table(s, "s")}
    schemas = {side: tables[side].schema for side in SIDES}
    schema = result_schema(schemas, args.how, args.output)
    bound = BoundTables.of(args.condition, schemas)  # reports a bad column or type before any device is opened
    made = PreparedJoin(args, schemas, bound, schema)
    if key is not None and not any(intake.code_columns for intake in bound.intakes.values()):
        if len(_kept) >= MAX_KEPT:
            _kept.clear()
        _kept[key] = made
    return made, tables


def _key(given: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The arguments as a key, if all are text, None or a whole number: of those `1`, `1.0` and `True` stay apart."""
    if all(one is None or type(one) is str or type(one) is int for one in given):
        return given
    return None
