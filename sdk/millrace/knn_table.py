"""`mr.knn_join`: the nearest rows of one table for each row of another.

s is indexed once (`host/knn/index.py`), and r's rows are searched in blocks. The output is ordered by r's row number,
then by rank. (The module is not called `knn_join`, so that `mr.knn_join` is always the function.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from millrace.host.base.errors import ArgumentError, DeviceFault
from millrace.host.base.types import SIDES, Side
from millrace.host.base.words import repeated
from millrace.host.data.timescale import NO_TIME
from millrace.host.data.tuples import Tuples
from millrace.host.device.contract import Device
from millrace.host.device.cpu import CpuDevice
from millrace.host.join.pair_memory import check_fits
from millrace.host.kernels.gathering import Gatherer
from millrace.host.knn.intake import bind_points
from millrace.host.knn.join_core import PointShape
from millrace.host.knn.metric import Metric
from millrace.host.knn.neighbour_rows import NeighbourRows, neighbour_rows
from millrace.host.knn.partitioned import open_index
from millrace.host.runtime.pool import cores
from millrace.host.runtime.team import Team
from millrace.ingest.choices import Fallback, KnnHow, KnnOutput
from millrace.ingest.knn_arguments import SearchArguments, parse_search
from millrace.ingest.tables import as_table
from millrace.join_parts.knn_blocks import query_blocks
from millrace.join_parts.knn_output import Columns, knn_schema, leading_columns
from millrace.join_parts.output import row_bytes
from millrace.join_parts.table_batches import warn_of_fallback


def knn_join(
    r: Any,
    s: Any = None,
    on: Any = None,
    *,
    k: int,
    metric: Metric = "euclidean",
    within: float | None = None,
    by: Any = None,
    how: KnnHow = "inner",
    self_join: bool = False,
    device: str = "auto",
    threads: int | None = None,
    output: KnnOutput = "pairs",
    fallback: Fallback | None = None,
    options: Mapping[str, int | float | str] | None = None,
) -> pa.Table:
    """For each row of r its k nearest rows of s, ordered by `r_seq`, then `rank` (from 0).

    >>> import millrace as mr, pyarrow as pa
    >>> r = pa.table({"x": [0.0, 9.0], "y": [0.0, 9.0]})
    >>> s = pa.table({"x": [3.0, 1.0, 9.0], "y": [4.0, 0.0, 8.0]})
    >>> mr.knn_join(r, s, on=("x", "y"), k=2, output="seqs").to_pydict()
    {'r_seq': [0, 0, 1, 1], 'rank': [0, 1, 0, 1], 's_seq': [1, 0, 2, 0], 'distance': [1.0, 5.0, 1.0, 7.810249675906654]}

    Equal distances are ordered by `s_seq`.

    Args:
        r (pyarrow.Table or the like): The rows that look for neighbours.
        s (pyarrow.Table or the like): The rows that are found; left out in a self-join.
        on (tuple[str, ...] | tuple[tuple[str, ...], tuple[str, ...]]): 2 to 8 numeric columns that both sides have, or
            a pair of tuples (r's, s's). Values become doubles.
        k: Neighbours per r row, at least 1; fewer candidates give fewer rows.
        metric: `"euclidean"`, or `"haversine"`: `on` is longitude and latitude in degrees, distances are metres.
        within: The largest distance, inclusive, in the unit of the coordinates (haversine: metres); None is no limit.
        by (str | tuple[str, str] | list | None): Only rows that are equal in these columns are neighbours.
        how: `"inner"`, or `"left"`, which keeps r rows without a neighbour, with nulls.
        self_join: Search r for the neighbours of its own rows; a row is not its own neighbour.
        device: `"cpu"`, `"opencl[:i]"`, `"cuda[:i]"`, or `"auto"`: the CPU, unless `millrace calibrate` found a GPU
            faster on this machine. Other devices do not search points.
        threads: The most threads of a call, 1 to 1,024; None is one per core.
        output: `"pairs"`, or `"seqs"` (no payload).
        fallback: `"cpu"` continues there after a `DeviceFault`, with nothing lost or repeated; None raises the fault.
        options: `partitions` and `map`; they change speed, never the result.

    Raises:
        ArgumentError: An argument is not allowed; the message says what is.
        DeviceUnavailable: The device cannot be used, or does not search points.
        KeyTypeError: A coordinate is not numeric.
    """
    args = parse_search(
        on=on,
        k=k,
        metric=metric,
        within=within,
        by=by,
        how=how,
        self_join=self_join,
        output=output,
        device=device,
        threads=threads,
        fallback=fallback,
        options=options,
    )
    tables = knn_tables(args, r, s, as_table)
    schema = knn_schema({side: tables[side].schema for side in SIDES}, output)
    sides = _read(args, tables)
    opened = args.engine.open()
    team = args.engine.partitioning.team(opened.team or Team(args.engine.threads or cores()))
    team.acquire(max(table.num_rows for table in tables.values()))
    try:
        blocks = _blocks(args, tables, sides, schema, team, opened)
    except DeviceFault as fault:
        if args.engine.fallback is None or opened.shares_host_memory:
            raise
        warn_of_fallback(f"{opened.name} -> cpu: {fault}", 2, "mr.knn_join")
        blocks = _blocks(args, tables, sides, schema, team, CpuDevice(team=team))
    finally:
        team.depth -= 1
        team.close()
        opened.close()
    return pa.concat_tables(blocks) if blocks else schema.empty_table()


def knn_tables(args: SearchArguments, r: Any, s: Any, convert: Any) -> dict[Side, Any]:
    """Both sides, converted; in a self-join the same table plays both."""
    if args.self_join:
        if s is not None and s is not r:
            raise ArgumentError("self_join=True searches one table: leave s out, or pass r again")
        table = convert(r, "r")
        return {"r": table, "s": table}
    if s is None:
        raise ArgumentError("s=None: pass the table that is searched, or self_join=True to search r itself")
    return {"r": convert(r, "r"), "s": convert(s, "s")}


def _read(args: SearchArguments, tables: dict[Side, pa.Table]) -> dict[Side, Tuples]:
    """The rows of both sides as tuples: their points and groups."""
    intakes = bind_points(args.spec, {side: tables[side].schema for side in SIDES})
    same = args.self_join and args.spec.on["r"] == args.spec.on["s"] and args.spec.by["r"] == args.spec.by["s"]
    read: dict[Side, Tuples] = {}
    for side in SIDES:
        rows = repeated(0, tables[side].num_rows)
        read[side] = read["r"] if same and read else intakes[side].read(tables[side], rows, 0, NO_TIME).tuples
    return read


def _blocks(
    args: SearchArguments,
    tables: dict[Side, pa.Table],
    sides: dict[Side, Tuples],
    schema: pa.Schema,
    team: Team,
    device: Device,
) -> list[pa.Table]:
    """The output in blocks of r rows."""
    spec, s, r = args.spec, sides["s"], sides["r"]
    shape = PointShape(spec.dimensions, bool(spec.by["s"]))
    index = open_index(args.engine.partitioning, shape, team, device=device)
    index.insert(spec.points_of("s", s.columns, s.live), spec.groups_of("s", s.columns))
    gatherers = [Gatherer(tables[side], team, scattered=side == "s") for side in SIDES]
    blocks, rows, each = [], 0, row_bytes(schema)
    for first, queries in query_blocks(args, r, len(s), np.arange(len(r)) if args.self_join else None):
        found = neighbour_rows(index.query(queries, args.k, args.limit), spec.metric, args.left, team, first)
        rows += len(found.queries)
        check_fits(rows, "search for fewer rows of r at a time", each, advice="or for fewer neighbours")
        blocks.append(pa.Table.from_arrays(_columns(found, gatherers, args.output), schema=schema))
    return blocks


def _columns(found: NeighbourRows, gatherers: list[Gatherer], output: str) -> Columns:
    """The columns of a block; queries are numbered as r's rows are."""
    columns = leading_columns(found, found.queries, found.positions)
    if output == "pairs":
        columns += gatherers[0].gather(pa.array(found.queries))
        columns += gatherers[1].gather(pa.array(found.positions, mask=found.missing))
    return columns
