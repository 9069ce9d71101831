"""Writes runs of the pipeline as a trace for Chrome (chrome://tracing) and Perfetto (ui.perfetto.dev).

Trace Event Format: one complete event ("X") per bucket and stage, with times in microseconds from the start of the run.
Host stages have one row each, device stages one row per lane, so that events of a row do not overlap. Stages that took
no time, because there was nothing to do, are left out. (The stages are those of the thesis, appendix A, 5.4.)
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millrace.host.base.errors import ArgumentError
from millrace.host.hybrid.pipeline import Bucket, Stage

NAMES = {
    Stage.WALK: "T0 walk",
    Stage.SEND: "T1 send",
    Stage.SEARCH: "T2 search",
    Stage.RECEIVE: "T3 receive",
    Stage.LEAVES: "T4 leaf search",
}
HOST, DEVICE = 1, 2
_PROCESSES = 2
_ON_DEVICE = (Stage.SEND, Stage.SEARCH, Stage.RECEIVE)
_ROWS_PER_STAGE = 100


@dataclass(frozen=True)
class Traced:
    """A run to show: its buckets, its description, and its name if there are several runs."""

    buckets: Sequence[Bucket]
    about: Mapping[str, Any]
    name: str = ""


def write(path: Path, *runs: Traced) -> None:
    """Write the trace of a run, or of several runs below each other, each starting at time 0.

    An existing file is replaced when the new one is complete.
    """
    temporary = path.parent / f".{path.name}.{os.getpid()}.tmp"
    try:
        temporary.write_text(json.dumps(events(*runs)), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise ArgumentError(
            f"trace {str(path)!r} cannot be written: {error.strerror}; give a file in a folder that can be written to"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def events(*runs: Traced) -> dict[str, Any]:
    """The trace as a JSON object; `otherData` holds the descriptions of the runs."""
    trace_events: list[dict[str, Any]] = []
    for number, run in enumerate(runs):
        base = _PROCESSES * number
        trace_events += [{**event, "pid": base + event["pid"]} for event in (*_names(run, base), *_spans(run.buckets))]
    about = {run.name: dict(run.about) for run in runs} if len(runs) > 1 else dict(runs[0].about)
    return {"traceEvents": trace_events, "displayTimeUnit": "ms", "otherData": about}


def _names(run: Traced, base: int) -> Iterator[dict[str, Any]]:
    """Metadata events: names and order of the rows."""
    before = f"{run.name}: " if run.name else ""
    for process, name in ((HOST, "host"), (DEVICE, f"device {run.about.get('device', '')}".strip())):
        order = {"sort_index": base + process}
        yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": before + name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": order}
    lanes = sorted({bucket.lane for bucket in run.buckets})
    for stage, name in NAMES.items():
        for lane in lanes if stage in _ON_DEVICE else [0]:
            process, row = _process_and_row(stage, lane)
            shown = f"{name}, lane {lane}" if stage in _ON_DEVICE and len(lanes) > 1 else name
            yield {"ph": "M", "name": "thread_name", "pid": process, "tid": row, "args": {"name": shown}}
            yield {"ph": "M", "name": "thread_sort_index", "pid": process, "tid": row, "args": {"sort_index": row}}


def _spans(buckets: Sequence[Bucket]) -> Iterator[dict[str, Any]]:
    origin = min((start for bucket in buckets for start, end in bucket.spans if end > start), default=0)
    for bucket in buckets:
        for stage, (start, end) in zip(Stage, bucket.spans, strict=True):
            if end == start:
                continue
            process, row = _process_and_row(stage, bucket.lane)
            yield {
                "ph": "X",
                "name": f"bucket {bucket.number}",
                "cat": NAMES[stage],
                "pid": process,
                "tid": row,
                "ts": (start - origin) / 1e3,
                "dur": (end - start) / 1e3,
                "args": {"bucket": bucket.number, "first": bucket.first, "queries": bucket.size},
            }


def _process_and_row(stage: Stage, lane: int) -> tuple[int, int]:
    """Process and row number of a stage; the numbers sort rows by stage."""
    if stage in _ON_DEVICE:
        return DEVICE, _ROWS_PER_STAGE * stage + lane
    return HOST, _ROWS_PER_STAGE * stage
