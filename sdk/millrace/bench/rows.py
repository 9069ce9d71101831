"""Result lines: one per pair of ours and a peer, as JSON objects, and the files they are kept in."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from millrace.bench.harness import Measured, Result
from millrace.bench.options import Options
from millrace.errors import ArgumentError

Row = dict[str, Any]


def result_rows(bench: str, result: Result, about: Mapping[str, Any]) -> Iterator[Row]:
    """Ours against each peer (`ratio` is ours / peer, higher is better); without peers, ours alone with nulls."""
    ours = [m for m in result.measured if m.contender.ours]
    peers: list[Measured | None] = [m for m in result.measured if not m.contender.ours]
    for mine in ours:
        for peer in peers or [None]:
            yield {
                "bench": bench,
                "case": result.case.name,
                "device": mine.contender.device,
                "index": mine.contender.index,
                "value": mine.value,
                "unit": result.case.unit,
                "peer": None if peer is None else peer.contender.name,
                "peer_value": None if peer is None else peer.value,
                "ratio": None if peer is None else mine.value / peer.value,
                "spread": mine.spread,
                "peer_spread": None if peer is None else peer.spread,
                "repeats": len(mine.speeds),
                "peer_repeats": None if peer is None else len(peer.speeds),
                **result.case.facts,
                **about,
            }


def about_run() -> Row:
    """What every line says of the run: when, on what, with which versions."""
    from millrace.bench.machine import machine, versions

    return {"date": datetime.now(UTC).strftime("%Y-%m-%d"), "versions": versions(), "machine": machine()}


def default_folder() -> Path:
    """`benchmarks/results` where there is a `benchmarks` folder, as in the source tree; else `millrace-results`."""
    return Path("benchmarks/results") if Path("benchmarks").is_dir() else Path("millrace-results")


def results_file(folder: Path, bench: str, date: str, options: Options) -> Path:
    """Where a bench's rows of a day are kept; neither a quick run nor one of some cases replaces a full one."""
    return folder / f"{bench}-{date}{'-quick' if options.quick else ''}{'-part' if options.only else ''}.jsonl"


@contextmanager
def keep_results(path: Path) -> Iterator[TextIO]:
    """A file for rows that becomes `path` when all are written; a run that fails or is stopped leaves `path` as is."""
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


def as_line(row: Row) -> str:
    """A row as one line of JSON."""
    return json.dumps(row, allow_nan=False)
