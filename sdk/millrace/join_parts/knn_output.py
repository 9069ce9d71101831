"""Builds what a nearest-neighbour join returns: the columns, their order and their types.

Columns: `r_seq`, `rank`, `s_seq`, `distance`; `r_source`, `s_source` if a side has several sources; then every column
as `r_<name>` and `s_<name>`. An r row without a neighbour, which `how="left"` keeps, has nulls in all but its own.
"""

from __future__ import annotations

import pyarrow as pa

from millrace.host.base.types import SIDES, Array, Side
from millrace.host.knn.neighbour_rows import NeighbourRows
from millrace.join_parts.output import distinct_schema

Columns = list[pa.Array | pa.ChunkedArray]


def knn_schema(schemas: dict[Side, pa.Schema], output: str, several: bool = False) -> pa.Schema:
    """The schema of the output; a side with an unknown schema has no payload columns."""
    fields = [
        pa.field("r_seq", pa.int64()),
        pa.field("rank", pa.int32()),
        pa.field("s_seq", pa.int64()),
        pa.field("distance", pa.float64()),
    ]
    if several:
        fields += [pa.field("r_source", pa.int32()), pa.field("s_source", pa.int32())]
    if output == "pairs":
        for side in SIDES:
            fields += [f.with_name(f"{side}_{f.name}").with_nullable(True) for f in schemas.get(side, ())]
    return distinct_schema(fields, "r_seq, rank, s_seq, distance, r_source and s_source")


def leading_columns(rows: NeighbourRows, r_seq: Array, s_seq: Array) -> Columns:
    """The first four columns; `s_seq` has any value where there is no neighbour."""
    missing = rows.missing
    return [
        pa.array(r_seq),
        pa.array(rows.ranks, mask=missing),
        pa.array(s_seq, mask=missing),
        pa.array(rows.distances, mask=missing),
    ]
