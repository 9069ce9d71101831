"""Result lines: one JSON object per pair of our contender and a peer, and the files that store them."""

from __future__ import annotations

import json
import os
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from millrace.bench.harness import Measured, Result
from millrace.bench.options import Options
from millrace.errors import ArgumentError

Row = dict[str, Any]


BEST_FIXED = "best fixed index"
"""The peer of `auto`: in each case, the fastest of our named indexes on the same device."""
_NO_PEER = dict.fromkeys(("peer", "peer_index", "peer_value", "peer_unit", "ratio", "peer_spread", "peer_repeats"))


def result_rows(bench: str, result: Result, about: Mapping[str, Any]) -> Iterator[Row]:
    """Ours against each peer (`ratio` = ours / peer, higher is better); without peers, one row with nulls."""
    for mine in [m for m in result.measured if m.contender.ours]:
        alone = {
            "bench": bench,
            "case": result.case.name,
            "contender": mine.contender.name,
            "device": mine.contender.device,
            "device_kind": mine.contender.device_kind,
            "index": mine.contender.index,
            "value": mine.value,
            "unit": result.case.unit,
            "spread": mine.spread,
            "repeats": len(mine.speeds),
            **_per_step("", mine, result),
        }
        for peer in list(_peer_parts(mine, result)) or [_NO_PEER]:
            yield {**alone, **peer, **result.case.facts, "missing": dict(result.missing), **about}


def _peer_parts(mine: Measured, result: Result) -> Iterator[Row]:
    """The peer columns of a row, for each peer."""
    for name, peer in _peers(mine, result):
        yield {
            "peer": name,
            "peer_index": peer.contender.index,
            "peer_value": peer.value,
            "peer_unit": peer.contender.unit or result.case.unit,
            "ratio": mine.value / peer.value,
            "peer_spread": peer.spread,
            "peer_repeats": len(peer.speeds),
            **_per_step("peer_", peer, result),
        }


def _per_step(prefix: str, one: Measured, result: Result) -> Row:
    """The percentiles over single steps, if the case wants them."""
    unit = result.case.step_unit
    return {} if unit is None else {f"{prefix}per_step": {**one.percentiles, "unit": unit}}


def _peers(mine: Measured, result: Result) -> Iterator[tuple[str, Measured]]:
    """The peers of one of ours: other tools, the rivals and, for `auto`, the best of our named indexes."""
    for other in result.measured:
        if not other.contender.ours or (other is not mine and other.contender.index in result.case.rivals):
            yield other.contender.name, other
    fixed = [m for m in result.measured if m.contender.ours and m.contender.device == mine.contender.device]
    fixed = [m for m in fixed if m.contender.index != "auto"]
    if mine.contender.index == "auto" and fixed:
        yield BEST_FIXED, max(fixed, key=lambda m: m.value)


def about_run() -> Row:
    """What every line reports about the run: date, machine, versions."""
    from millrace.bench.machine import machine, versions

    return {"date": datetime.now(UTC).strftime("%Y-%m-%d"), "versions": versions(), "machine": machine()}


def default_folder() -> Path:
    """`benchmarks/results` if a `benchmarks` folder exists, as in the source tree; else `millrace-results`."""
    return Path("benchmarks/results") if Path("benchmarks").is_dir() else Path("millrace-results")


def results_file(folder: Path, bench: str, date: str, options: Options) -> Path:
    """The file for a bench's rows of a day; quick runs and runs of some cases do not replace a full run."""
    return folder / f"{bench}-{date}{'-quick' if options.quick else ''}{'-part' if options.only else ''}.jsonl"


@contextmanager
def keep_results(path: Path) -> Iterator[TextIO]:
    """A temporary file that replaces `path` when all rows are written; a run that fails leaves `path` unchanged."""
    growing = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = growing.open("w", encoding="utf-8")
    except OSError as error:
        raise ArgumentError(
            f"results cannot be written to {path}: {error.strerror}; choose a folder with --out"
        ) from error
    try:
        with file:
            yield file
        growing.replace(path)
    finally:
        growing.unlink(missing_ok=True)


def lines_of_other_cases(path: Path, cases: Container[str]) -> list[str]:
    """The lines of an existing file whose cases are not among `cases`: a run of some cases replaces these alone."""
    if not path.exists():
        return []
    return [line for line in path.read_text(encoding="utf-8").splitlines() if json.loads(line)["case"] not in cases]


def as_line(row: Row) -> str:
    """A row as one line of JSON."""
    return json.dumps(row, allow_nan=False)
