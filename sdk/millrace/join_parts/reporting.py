"""What a join of streams reports of itself: its stats and its text. Reading them changes nothing and takes no lock.

They are made from the last `Progress`, which is immutable and replaced when a call has succeeded. So another thread may
be in the middle of a push.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.base.types import SIDES, Array, Side
from millrace.host.expr.exact import INT64_MAX, INT64_MIN
from millrace.host.expr.plan import Plan
from millrace.host.planner.choice import auto_devices
from millrace.host.planner.explanation import Explanation, explain_index, explain_plan
from millrace.ingest.arguments import StreamArguments, WindowArguments
from millrace.join_parts.batch_reader import Progress
from millrace.join_parts.held_windows import HeldWindows
from millrace.join_parts.window_engine import WindowEngine
from millrace.stats import JoinStats


def join_stats(args: StreamArguments, engine: HeldWindows, progress: Progress) -> JoinStats:
    """The stats, without counters."""
    rows: dict[Side, int] = {side: sum(n for (of, _), n in progress.seqs.items() if of == side) for side in SIDES}
    totals = progress.totals
    return JoinStats(
        rows={str(side): number for side, number in rows.items()},
        late=totals.late,
        null_times=totals.null_times,
        null_keys=totals.null_keys,
        pending=len(progress.waiting),
        held=_held(args, engine.held, progress, rows),
        pairs=totals.pairs,
        device=engine.current_device.name,
        index=engine.index,
        strategy=engine.strategy(),
        plan="" if progress.plan is None else progress.plan.describe(),
        fallback=engine.fallback(),
    )


def _held(args: StreamArguments, sides: tuple[Side, ...], progress: Progress, rows: dict[Side, int]) -> int:
    """The tuples that a later one can still match; evicting them in bulk is the engine's own matter."""
    lengths: dict[Side, int] = {"r": args.window.r.length, "s": args.window.s.length}
    if args.time is None:
        held = [min(rows["r" if args.self_join else side], lengths[side]) for side in sides]
    elif args.window.counts:
        held = [min(end, lengths[side]) for side, (_, end, _) in progress.extents.items()]
    else:
        held = [_held_by_time(args, progress, side, extent) for side, extent in progress.extents.items()]
    return max(held, default=0) if args.self_join else sum(held)


def _held_by_time(args: StreamArguments, progress: Progress, side: Side, extent: tuple[int, int, Array]) -> int:
    first, end, times = extent
    frontier = progress.clocks.frontier()
    if frontier is None:
        return end - first
    span = args.window.r if side == "r" else args.window.s
    oldest = frontier[0] - (progress.scale.ticks(span.length) if span.measure == "ns" else span.length)
    if oldest > INT64_MAX:
        return 0
    return end - first - int(np.searchsorted(times, max(oldest, INT64_MIN)))


def explain_window(args: StreamArguments) -> dict[str, Any]:
    """The arguments that decide which tuples meet, for an explanation."""
    return {
        "window": {"r": str(args.window.r), "s": str(args.window.s)},
        "time": args.time,
        "lateness": str(args.lateness),
        "sources": args.sources,
        "self_join": args.self_join,
        "output": args.output,
    }


def explain_join(args: WindowArguments, engine: WindowEngine, progress: Progress) -> Explanation:
    """The plan, index and device of a join that is open."""
    device, fallback = engine.current_device.name, engine.fallback()
    plan = progress.plan if isinstance(progress.plan, Plan) else None
    why = "the device was named" if args.engine.device != "auto" else auto_devices(args.engine.threads).get(device, "")
    return Explanation(
        "window_join",
        {**explain_plan(args.condition, plan, engine.index), **explain_window(args)},
        explain_index(args.engine.choice, engine.index, device, engine.strategy()),
        {"name": device, "why": fallback or why, "threads": args.engine.threads, "fallback": args.engine.fallback},
    )


def describe_join(args: WindowArguments, stats: JoinStats) -> str:
    """Condition, window, index, device and row counts in one line."""
    window = str(args.window.r) if args.window.r == args.window.s else f"({args.window.r}, {args.window.s})"
    return (
        f"<millrace WindowJoin on {args.condition.text!r}, window {window}, index {stats.index}, device "
        f"{stats.device}: {stats.rows['r']} r rows, {stats.rows['s']} s rows, {stats.held} held, {stats.pairs} pairs>"
    )
