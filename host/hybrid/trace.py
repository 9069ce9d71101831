"""A run of the pipeline as a trace that Chrome (chrome://tracing) and Perfetto (ui.perfetto.dev) show.

Trace Event Format: one complete event ("X") per bucket and stage, times in microseconds from the run's beginning. The
host's stages have a row each; those of the device one per lane, so that no two events of a row overlap. Stages that
took no time, because there was nothing to do, are left out.
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
    """A run to be shown: its buckets, what is told about it, and its name where there are several."""

    buckets: Sequence[Bucket]
    about: Mapping[str, Any]
    name: str = ""


def write(path: Path, *runs: Traced) -> None:
    """Write the trace of a run, or of several below each other, each from time 0 on.

    A file that is there already is replaced when the new one is complete.
    """
    growing = path.parent / f".{path.name}.{os.getpid()}.tmp"
    try:
        growing.write_text(json.dumps(events(*runs)), encoding="utf-8")
        growing.replace(path)
    except OSError as error:
        raise ArgumentError(
            f"trace {str(path)!r} cannot be written: {error.strerror}; give a file in a folder that can be written to"
        ) from error
    finally:
        growing.unlink(missing_ok=True)


def events(*runs: Traced) -> dict[str, Any]:
    """The trace as an object; what is told about the runs is kept beside the events."""
    told: list[dict[str, Any]] = []
    for number, run in enumerate(runs):
        base = _PROCESSES * number
        told += [{**event, "pid": base + event["pid"]} for event in (*_names(run, base), *_spans(run.buckets))]
    about = {run.name: dict(run.about) for run in runs} if len(runs) > 1 else dict(runs[0].about)
    return {"traceEvents": told, "displayTimeUnit": "ms", "otherData": about}


def _names(run: Traced, base: int) -> Iterator[dict[str, Any]]:
    """What rows are called, and in which order they stand."""
    before = f"{run.name}: " if run.name else ""
    for process, name in ((HOST, "host"), (DEVICE, f"device {run.about.get('device', '')}".strip())):
        order = {"sort_index": base + process}
        yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": before + name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": order}
    lanes = sorted({bucket.lane for bucket in run.buckets})
    for stage, name in NAMES.items():
        for lane in lanes if stage in _ON_DEVICE else [0]:
            process, row = _place(stage, lane)
            shown = f"{name}, lane {lane}" if stage in _ON_DEVICE and len(lanes) > 1 else name
            yield {"ph": "M", "name": "thread_name", "pid": process, "tid": row, "args": {"name": shown}}
            yield {"ph": "M", "name": "thread_sort_index", "pid": process, "tid": row, "args": {"sort_index": row}}


def _spans(buckets: Sequence[Bucket]) -> Iterator[dict[str, Any]]:
    origin = min((start for bucket in buckets for start, end in bucket.spans if end > start), default=0)
    for bucket in buckets:
        for stage, (start, end) in zip(Stage, bucket.spans, strict=True):
            if end == start:
                continue
            process, row = _place(stage, bucket.lane)
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


def _place(stage: Stage, lane: int) -> tuple[int, int]:
    """Process and row of a stage; the numbers put rows in the order of the stages."""
    if stage in _ON_DEVICE:
        return DEVICE, _ROWS_PER_STAGE * stage + lane
    return HOST, _ROWS_PER_STAGE * stage
