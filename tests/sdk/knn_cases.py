"""Random nearest-neighbour joins for tests: rows for the oracle and the same rows in Arrow, and results as tuples."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from millrace.host.knn import balance, partitioned
from millrace.host.knn.maps import MAP_KINDS
from millrace.host.knn.partitioned import REPLACEMENTS
from tests.knn_oracle import Found

NAMES = ("a", "b", "c", "d", "e", "f", "g", "h")
Rows = list[dict[str, Any]]


def random_rows(rng: random.Random, count: int, dims: int, shape: str, bad: float = 0.0) -> Rows:
    """Rows with coordinates of a shape, a row number, a group and a text; some coordinates are no numbers."""
    rows = []
    for number in range(count):
        point = [_coordinate(rng, shape, i) for i in range(dims)]
        if shape == "line":
            point = [point[0]] * dims
        row: dict[str, Any] = dict(zip(NAMES, point, strict=False))
        if rng.random() < bad:
            row[rng.choice(NAMES[:dims])] = rng.choice([None, float("nan"), float("inf"), float("-inf")])
        row |= {"n": number, "team": rng.choice(["red", "green", "blue", None]), "level": rng.randrange(3)}
        rows.append(row)
    return rows


def _coordinate(rng: random.Random, shape: str, dimension: int) -> float:
    match shape:
        case "uniform" | "line":
            return rng.random()
        case "grid":
            return float(rng.randrange(4))
        case "clusters":
            return rng.choice([0.0, 1.0, 1e6]) + rng.gauss(0, 1e-3)
        case "huge":
            return rng.choice([-1e200, 1e-200, 3.0, 1e200, 1e308])
        case "sphere":
            return rng.uniform(-180, 180) if dimension == 0 else rng.choice([-90.0, 90.0, rng.uniform(-95, 95)])
        case "equal":
            return 7.0
    raise ValueError(shape)


SHAPES = ("uniform", "line", "grid", "clusters", "huge", "equal")


def random_options(rng: random.Random) -> dict[str, Any] | None:
    """Partitions for two of three joins."""
    if rng.random() < 1 / 3:
        return None
    return {
        "partitions": rng.choice([2, 3, 8]),
        "map": rng.choice(MAP_KINDS),
        "replace": rng.choice(REPLACEMENTS),
    }


def small_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tasks in a call of some rows, and maps that are replaced after some rows."""
    monkeypatch.setattr(partitioned, "TASK_ROWS", 4)
    monkeypatch.setattr(partitioned, "MIN_SHARED_ROWS", 4)
    monkeypatch.setattr(balance, "INTERVAL_LOAD", 3)
    monkeypatch.setattr(balance, "MIN_SAMPLE", 2)


def as_arrow(rows: Rows, dims: int, coordinate: pa.DataType | None = None, time: pa.DataType | None = None) -> pa.Table:
    fields = [pa.field(name, coordinate or pa.float64()) for name in NAMES[:dims]]
    fields += [pa.field("n", pa.int64()), pa.field("team", pa.string()), pa.field("level", pa.int8())]
    if time is not None:
        fields.append(pa.field("ts", time))
    return pa.Table.from_pylist(rows, schema=pa.schema(fields))


def found_rows(table: pa.Table) -> list[Found]:
    """The result as the oracle writes it."""
    seqs = [table[name].to_pylist() for name in ("r_seq", "rank", "s_seq", "distance")]
    several = "r_source" in table.column_names
    sources = [table[name].to_pylist() for name in ("r_source", "s_source")] if several else None
    rows = []
    for i, (r_seq, rank, s_seq, distance) in enumerate(zip(*seqs, strict=True)):
        r_source, s_source = (sources[0][i], sources[1][i]) if sources else (0, None if s_seq is None else 0)
        rows.append((r_source, r_seq, rank, s_source, s_seq, distance))
    return rows
