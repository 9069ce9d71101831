"""A condition bound to two tables' schemas, once per call: the plan, and how each side's rows are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from millrace.host.base.codes import CodeTable
from millrace.host.base.types import SIDES, Side
from millrace.host.base.words import repeated
from millrace.host.data.timescale import NO_TIME
from millrace.host.data.tuples import Tuples
from millrace.host.expr.condition import Condition
from millrace.host.expr.plan import Plan, bind
from millrace.host.stream.intake import Intake, Reading, make_intake


@dataclass(frozen=True)
class BoundTables:
    """What joins of whole tables share: the direct strategy and the probe read rows and plan searches by it."""

    plan: Plan
    intakes: dict[Side, Intake]
    codes: CodeTable

    @staticmethod
    def of(condition: Condition, schemas: Mapping[Side, pa.Schema]) -> BoundTables:
        """Bind a condition; a missing column or a wrong type is reported here, before any row is read."""
        codes = CodeTable()
        plan = bind(condition, dict(schemas), codes)
        return BoundTables(
            plan, {side: make_intake(side, condition, schemas[side], None, codes) for side in SIDES}, codes
        )

    def read(self, side: Side, table: pa.Table) -> Reading:
        """Read a side's table. Row numbers are not stored: a table's rows are known by their position."""
        return self.intakes[side].read(table, repeated(0, table.num_rows), 0, NO_TIME)

    def sweep(self, side: Side, held: Tuples) -> None:
        """Drop codes of values that the held rows, which are `side`'s, do not have, if there are many codes."""
        if self.codes.due:
            self.codes.sweep(held.columns[name] for name in self.intakes[side].code_columns)
