"""Builds what a join returns: the columns, their order and their types.

Columns: `r_seq`, `s_seq`; `r_source`, `s_source` if a side has several sources; then every column as `r_<name>` and
`s_<name>`. Payload is gathered once, as the last step.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa

from millrace.host.base.columns import column_of
from millrace.host.base.errors import SchemaError
from millrace.host.base.types import SIDES, Array, Positions, Side
from millrace.host.data.window import Window
from millrace.host.runtime.team import Team
from millrace.host.stream.window_bounds import TakenTuples

COUNT_SCHEMA = pa.schema([("side", pa.string()), ("source", pa.int32()), ("seq", pa.int64()), ("count", pa.int64())])
MIN_SHARED_PAIRS = 1 << 15
"""With fewer pairs one thread gathers the payload: waking others costs more."""
Schemas = dict[Side, pa.Schema]
_LONG = pa.int64()


def pair_schema(schemas: Schemas, output: str, several: bool) -> pa.Schema:
    """The schema of pairs; a side with an unknown schema has no payload columns."""
    fields = [pa.field("r_seq", pa.int64()), pa.field("s_seq", pa.int64())]
    if several:
        fields += [pa.field("r_source", pa.int32()), pa.field("s_source", pa.int32())]
    if output == "pairs":
        for side in SIDES:
            fields += [f.with_name(f"{side}_{f.name}").with_nullable(True) for f in schemas.get(side, ())]
    return distinct_schema(fields, "r_seq, s_seq, r_source and s_source")


def distinct_schema(fields: list[pa.Field], taken: str) -> pa.Schema:
    """A schema of these fields; a `SchemaError` if names clash. `taken`: the names that are not payload."""
    names = [f.name for f in fields]
    clash = sorted(name for name, count in Counter(names).items() if count > 1)
    if clash:
        raise SchemaError(
            f"the output would have several columns named {', '.join(clash)}: rename the input's columns "
            f"{', '.join(f'{n[0]}.{n[2:]}' for n in clash)} ({taken} are taken)"
        )
    return pa.schema(fields)


def pairs_table(
    schema: pa.Schema,
    windows: dict[Side, Window],
    positions: dict[Side, Positions],
    several: bool,
    team: Team,
    compiled: bool = True,
) -> pa.Table:
    """Pairs given by positions in the two windows; the team gathers their payload, or Arrow unless `compiled`."""
    r, s = positions["r"], positions["s"]
    columns: list[pa.Array | pa.ChunkedArray] = [longs(windows["r"].seq_at(r)), longs(windows["s"].seq_at(s))]
    if several:
        columns += [column_of(windows["r"].source.take(r)), column_of(windows["s"].source.take(s))]
    if len(schema) > len(columns) and not compiled:
        for side in SIDES:
            columns += windows[side].rows.gather(positions[side]).columns
    elif len(schema) > len(columns):
        team.acquire(len(r))
        try:
            for side in SIDES:
                columns += windows[side].payload_at(positions[side], team)
        finally:
            team.depth -= 1
    return pa.Table.from_arrays(columns, schema=schema)


def longs(values: Array) -> pa.Array:
    """A column of 64-bit integers without a copy; faster than `pa.array`, whose first call imports pandas."""
    return pa.Array.from_buffers(_LONG, len(values), [None, pa.py_buffer(values)])


def counts_table(taken: TakenTuples, counts: Positions) -> pa.Table:
    """One row per taken tuple, in order (in a self-join each tuple once, as r)."""
    order = np.zeros(len(taken.sides["r"]), np.uint8) if taken.self_join else taken.order
    source, seq = np.zeros(len(order), np.int32), np.zeros(len(order), np.int64)
    for side in SIDES[:1] if taken.self_join else SIDES:
        at = np.flatnonzero(order == (side == "s"))
        source[at], seq[at] = taken.sides[side].source, taken.sides[side].seq
    sides = pa.array(SIDES).take(column_of(order))
    arrays = [sides, column_of(source), column_of(seq), column_of(counts[: len(order)])]
    return pa.Table.from_arrays(arrays, schema=COUNT_SCHEMA)


def row_bytes(schema: pa.Schema) -> int:
    """The bytes of a row of output, at least; values of variable length count as their offsets."""
    return sum(_value_bytes(kind) for kind in schema.types)


def _value_bytes(kind: pa.DataType) -> int:
    try:
        return max(int(kind.bit_width) // 8, 1)
    except ValueError:
        return 4
