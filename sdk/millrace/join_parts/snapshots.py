"""Takes the snapshot of a join of streams that `state()` stores, and loads one into a new join.

The format of the bytes is in `state/join_state.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from millrace.host.base.errors import ArgumentError, KeyTypeError, PredicateError, SchemaError, StateError
from millrace.host.base.types import SIDES
from millrace.host.stream.timeline import Waiting
from millrace.join_parts.batch_reader import BatchReader, Progress
from millrace.join_parts.held_windows import HeldWindows
from millrace.state.checks import FOREIGN, no_state
from millrace.state.join_state import Snapshot, StoredState


def take_snapshot(arguments: dict[str, str], progress: Progress, engine: HeldWindows) -> Snapshot:
    """The state of a join without its rows."""
    return Snapshot(
        arguments=arguments,
        schemas={side: intake.schema for side, intake in progress.intakes.items()},
        scale=progress.scale,
        clocks=progress.clocks,
        seqs={f"{side}{source}": n for (side, source), n in progress.seqs.items()},
        totals=progress.totals,
        counters=engine.counters(),
        fallback=engine.fallback(),
        strategy=engine.strategy(),
    )


def load_snapshot(stored: StoredState, reader: BatchReader[Any], engine: HeldWindows, progress: Progress) -> Progress:
    """Give a new join's engine its windows; return the progress to go on with."""
    try:
        return _loaded(stored, reader, engine, progress)
    except (*FOREIGN, SchemaError, ArgumentError, KeyTypeError, PredicateError) as error:
        raise no_state(error) from error


def _loaded(stored: StoredState, reader: BatchReader[Any], engine: HeldWindows, progress: Progress) -> Progress:
    snapshot = stored.snapshot
    if len(snapshot.clocks.high) != len(reader.ranks):
        raise StateError(f"the state has {len(snapshot.clocks.high)} clocks; the join has {len(reader.ranks)} sources")
    for side in reader.args.sides:
        if side in snapshot.schemas and side not in progress.intakes:
            progress = reader.add_schema(progress, side, snapshot.schemas[side])
    seqs = {(side, source): snapshot.seqs[f"{side}{source}"] for side, source in reader.ranks}
    progress = replace(progress, scale=snapshot.scale, clocks=snapshot.clocks, seqs=seqs, totals=snapshot.totals)
    windows = {
        side: stored.window(side, intake, snapshot.scale)
        for side, intake in progress.intakes.items()
        if side in engine.held
    }
    frontier = progress.clocks.frontier()
    first_rank = reader.first_rank()
    waiting = {side: stored.waiting(side, progress.intakes.get(side), frontier, first_rank[side]) for side in SIDES}
    engine.load(windows, snapshot)
    return replace(progress, waiting=Waiting(waiting), extents=engine.extents())
