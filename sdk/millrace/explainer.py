"""`mr.explain`: what a call would do and why, without doing it. It opens no device and changes nothing.

(The module is not called `explain`, so that `mr.explain` is always the function.)
"""

from __future__ import annotations

from inspect import signature
from typing import Any, Literal

import pyarrow as pa

from millrace.host.base.errors import ArgumentError
from millrace.host.base.types import SIDES, Side
from millrace.host.expr.grouped_keys import grouped
from millrace.host.expr.plan import Plan, bind
from millrace.host.knn.intake import bind_points
from millrace.host.planner.explanation import Explanation, explain_index, explain_plan
from millrace.ingest.arguments import GivenWindowArguments, parse_window_arguments
from millrace.ingest.knn_arguments import GivenKnnArguments, explain_knn, parse_knn_arguments, parse_search
from millrace.ingest.tables import as_schema, as_table
from millrace.join_parts.prepared_join import TableArguments
from millrace.join_parts.reporting import explain_window
from millrace.knn_stream import KnnJoin, explain_stream
from millrace.knn_table import knn_join, knn_tables
from millrace.registry import planned_device
from millrace.table_join import join
from millrace.window_join import WindowJoin

Explained = Literal["join", "window_join", "knn_join"]


def explain(operator: Explained, *arguments: Any, **named: Any) -> Explanation:
    """What a call would do with these arguments, and why: "join", "window_join", or "knn_join" (tables or streams).

    It takes the arguments of that call; `r` and `s` may be schemas in place of tables. An argument that the call would
    refuse is refused here too.

    >>> import millrace as mr, pyarrow as pa
    >>> r = s = pa.schema({"x": pa.int64(), "y": pa.int64()})
    >>> mr.explain("join", r, s, on="abs(r.x - s.x) <= 5 AND r.y < s.y", device="cpu")
    join
      plan condition   abs(r.x - s.x) <= 5 AND r.y < s.y
      plan kind        band
      plan keys        r: r.x; s: s.x
      plan rechecked   r.y < s.y
      plan filters     r: none; s: none
      plan how         inner
      plan output      pairs
      index            auto
      index why        a condition of the kind 'band' has few partners per tuple
      index serving    auto, bisort, rap, wib, spo, pim, im, chain, btree, scan
      device           cpu
      device why       the device was named
      device threads   -
      device fallback  -

    Args:
        operator: `"join"`, `"window_join"` or `"knn_join"`.
        arguments (Any): The positional arguments of that call.
        named (Any): Its named arguments.

    Raises:
        ArgumentError: The operator is unknown, or the call would refuse an argument.
        PredicateError: The call would refuse the condition.
    """
    if not isinstance(operator, str) or operator not in _EXPLAIN:
        raise ArgumentError(f"operator={operator!r} is unknown; allowed are {', '.join(map(repr, _EXPLAIN))}")
    return _EXPLAIN[operator](*arguments, **named)


def _join(*arguments: Any, **named: Any) -> Explanation:
    given = signature(join).bind(*arguments, **named)
    given.apply_defaults()
    tables = {side: given.arguments.pop(side) for side in SIDES}
    parsed = TableArguments.of(**given.arguments)
    schemas: dict[Side, pa.Schema] = {side: _schema(table, side) for side, table in tables.items()}
    plan = grouped(bind(parsed.condition, schemas))
    return _explanation("join", parsed, plan, {"how": parsed.how, "output": parsed.output})


def _schema(given: Any, side: str) -> pa.Schema:
    return as_schema(given, side) if isinstance(given, pa.Schema) else as_table(given, side).schema


def _window_join(*arguments: Any, **named: Any) -> Explanation:
    given = signature(WindowJoin).bind(*arguments, **named)
    given.apply_defaults()
    schemas = given.arguments.pop("schemas") or {}
    parsed = parse_window_arguments(GivenWindowArguments(**given.arguments))
    known: dict[Side, pa.Schema] = {side: as_schema(schemas[side], side) for side in parsed.sides if side in schemas}
    if parsed.self_join and "r" in known:
        known["s"] = known["r"]
    plan = grouped(bind(parsed.condition, known)) if len(known) == len(SIDES) else None
    return _explanation("window_join", parsed, plan, explain_window(parsed))


def _explanation(operator: str, parsed: Any, plan: Plan | None, more: dict[str, Any]) -> Explanation:
    engine = parsed.engine
    index, device, why = planned_device(engine.choice, engine.device, engine.threads)
    return Explanation(
        operator,
        {**explain_plan(parsed.condition, plan, index), **more},
        explain_index(engine.choice, index, device),
        {"name": device, "why": why, "threads": engine.threads, "fallback": engine.fallback},
    )


def _knn_join(*arguments: Any, **named: Any) -> Explanation:
    """`mr.knn_join`, or `mr.KnnJoin` if there is a window."""
    if "window" in named:
        given = signature(KnnJoin).bind(*arguments, **named)
        given.apply_defaults()
        given.arguments.pop("schemas")
        return explain_stream(parse_knn_arguments(GivenKnnArguments(**given.arguments)))
    given = signature(knn_join).bind(*arguments, **named)
    given.apply_defaults()
    r, s = (given.arguments.pop(side) for side in SIDES)
    parsed = parse_search(**given.arguments)
    schemas = knn_tables(parsed, r, s, _schema)
    bind_points(parsed.spec, schemas)
    return explain_knn(parsed, {})


_EXPLAIN = {"join": _join, "window_join": _window_join, "knn_join": _knn_join}
