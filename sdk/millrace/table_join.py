"""`mr.join`: two whole tables, joined on any condition of order.

The same engine as the window join: s fills a window, r's rows search it in blocks. Rows come ordered by r's row
number, then s's. (The module is not called `join`, so that `mr.join` is always the function.)
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace import output as out
from millrace.arguments import HOWS, OUTPUTS, Engine, parse_condition, parse_engine
from millrace.checks import choice
from millrace.door import as_table
from millrace.host import pool
from millrace.host.condition import SIDES, Side
from millrace.host.indexes import Positions
from millrace.host.intake import make_intake
from millrace.host.matcher import Found, Matcher
from millrace.host.plan import Plan, bind
from millrace.host.reach import Reach, Taken, arrival_order
from millrace.host.rowstore import gather
from millrace.host.selectivity import most_selective
from millrace.host.timescale import TimeScale
from millrace.host.tuples import Tuples
from millrace.host.window import Window


def join(
    r: Any,
    s: Any,
    on: str,
    how: str = "inner",
    index: str = "auto",
    device: str = "auto",
    threads: int | None = None,
    output: str = "pairs",
    fallback: str | None = None,
) -> pa.Table:
    """All pairs of rows of two tables that satisfy `on`, ordered by `r_seq`, then `s_seq` (row numbers).

    >>> import millrace as mr, pyarrow as pa
    >>> r, s = pa.table({"power": [5, 9]}), pa.table({"power": [7, 8]})
    >>> mr.join(r, s, on="r.power < s.power").to_pydict()
    {'r_seq': [0, 0], 's_seq': [0, 1], 'r_power': [5, 5], 's_power': [7, 8]}
    >>> mr.join(r, s, on="r.power < s.power", how="anti").to_pydict()
    {'r_seq': [1], 'r_power': [9]}

    `how`: `"inner"`, `"left"` (r rows without a partner too, with nulls), `"semi"` or `"anti"` (r rows with, or
    without, a partner). `output`: `"pairs"`, `"seqs"` (no payload) or `"count"` (`r_seq` and how many s rows it
    meets, for the r rows that `how` keeps).
    """
    condition = parse_condition(on)
    choice("how", how, HOWS)
    choice("output", output, OUTPUTS)
    counting = output == "count" or how in ("semi", "anti")
    engine = parse_engine(condition, index, device, threads, fallback, counting)
    tables: dict[Side, pa.Table] = {"r": as_table(r, "r"), "s": as_table(s, "s")}
    schemas = {side: tables[side].schema for side in SIDES}
    schema = _schema(schemas, how, output)
    bind(condition, schemas)  # a bad column or type is told before any row is read
    sides: dict[Side, Tuples] = {}
    for side in SIDES:
        intake = make_intake(side, condition, schemas[side], None)
        numbers = np.arange(tables[side].num_rows, dtype=np.int64)
        sides[side] = intake.read(tables[side], numbers, 0, TimeScale(unit=1)).tuples
    plan = most_selective(condition, schemas, sides)
    counts, positions = _run(engine, plan, sides, want_pairs=how in ("inner", "left") and output != "count")
    return _result(schema, tables, how, output, counts, positions)


def _run(
    engine: Engine, plan: Plan, sides: dict[Side, Tuples], want_pairs: bool
) -> tuple[Positions, dict[Side, Positions]]:
    """Match on the engine's device; say so if it had to fall back, since there are no stats to look at."""
    opened = engine.open()
    try:
        rows = {side: len(sides[side]) for side in SIDES}
        matcher = Matcher(plan, opened.index, opened.device, opened.spare, rows, whole=True)
        result = _match(matcher, sides, want_pairs)
    finally:
        opened.close()
    if matcher.fell_back is not None:
        warnings.warn(f"mr.join fell back, {matcher.fell_back}", RuntimeWarning, stacklevel=3)
    return result


def _match(matcher: Matcher, sides: dict[Side, Tuples], want_pairs: bool) -> tuple[Positions, dict[Side, Positions]]:
    """How many partners each r row has and, if wanted, the pairs: r searches a window that holds all of s."""
    windows = {side: Window({n: c.dtype for n, c in sides[side].columns.items()}) for side in SIDES}
    for side in SIDES:
        windows[side].append(sides[side])
    r_rows = len(sides["r"])
    taken = Taken({"r": sides["r"], "s": sides["s"].slice(0, 0)}, arrival_order(r_rows, 0))
    new = Reach(True, {"r": 1, "s": max(len(sides["s"]), 1)}).newcomers(windows, taken)
    found: list[Found] = list(matcher.match(windows, new, taken.order, lambda n: (n, 0), want_pairs=want_pairs))
    counts = np.concatenate([np.zeros(0, np.int64), *(f.counts["r"] for f in found)])
    if not want_pairs:
        return counts, {}
    return counts, {
        "r": np.concatenate([np.zeros(0, np.int64), *(_own(f) for f in found)]),
        "s": np.concatenate([np.zeros(0, np.int64), *(f.partner["r"] for f in found)]),
    }


def _own(found: Found) -> Positions:
    """The r rows of a block's pairs."""
    own = found.own["r"]
    return found.newcomer("r") if own is None else own


def _schema(schemas: dict[Side, pa.Schema], how: str, output: str) -> pa.Schema:
    if output == "count":
        return pa.schema([("r_seq", pa.int64()), ("count", pa.int64())])
    if how in ("semi", "anti"):
        only_r = out.pair_schema({"r": schemas["r"]}, output, several=False)
        return pa.schema([f for f in only_r if f.name != "s_seq"])
    return out.pair_schema(schemas, output, several=False)


def _result(
    schema: pa.Schema,
    tables: dict[Side, pa.Table],
    how: str,
    output: str,
    counts: Positions,
    positions: dict[Side, Positions],
) -> pa.Table:
    if how in ("semi", "anti") or output == "count":
        kept = {"semi": counts > 0, "anti": counts == 0}.get(how, np.ones(len(counts), np.bool_))
        rows = np.flatnonzero(kept)
        if output == "count":
            return pa.Table.from_arrays([pa.array(rows), pa.array(counts[rows])], schema=schema)
        payload = gather(tables["r"], pa.array(rows)).columns if output == "pairs" else []
        return pa.Table.from_arrays([pa.array(rows), *payload], schema=schema)
    r, s = pa.array(positions["r"]), pa.array(positions["s"])
    if how == "left":
        r, s = _with_lonely(positions, counts)
    payload = []
    if output == "pairs":
        both = pool.run([partial(gather, tables["r"], r), partial(gather, tables["s"], s)])
        payload = [column for table in both for column in table.columns]
    return pa.Table.from_arrays([r, s, *payload], schema=schema)


def _with_lonely(positions: dict[Side, Positions], counts: Positions) -> tuple[pa.Array, pa.Array]:
    """Pairs and, in their places, r rows that have no partner: s is null there."""
    rows = np.repeat(np.arange(len(counts)), np.maximum(counts, 1))
    lonely = (counts == 0)[rows]
    partners = np.zeros(len(rows), np.int64)
    partners[~lonely] = positions["s"]
    return pa.array(rows), pc.if_else(pa.array(lonely), pa.scalar(None, pa.int64()), pa.array(partners))
