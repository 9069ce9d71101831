"""Nearest-neighbour joins equal the oracle on every device: tables and streams, the same random cases for all.

A device may have the host search for a query, and says so; most queries of cases without ties must be its own.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

import millrace as mr
from millrace.host.knn import index
from tests.conformance.injection import KNN, case_faults, device_points
from tests.knn_oracle import Search, knn_join
from tests.sdk.knn_cases import NAMES, SHAPES, as_arrow, found_rows, random_options, random_rows, small_intervals
from tests.sdk.test_knn_stream import Case, call, check_stats

DEVICES = ("cpu", "opencl:0", "cuda-emulated:0")
TABLES, STREAMS = 8, 6
"""Tests; each has several cases."""
WITHOUT_NAN = ["r_seq", "rank", "s_seq", "distance", "r_n", "r_team", "s_n", "s_team"]
"""Columns that Arrow compares: NaN, in the coordinates of r, does not equal itself."""


@pytest.fixture(autouse=True)
def _small_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every second test some rows are runs, tasks and intervals of their own, so that all ways are taken."""
    if request.node.callspec.params.get("seed", 0) % 2:
        small_intervals(monkeypatch)
        monkeypatch.setattr(index, "TAIL_ROWS", 8)
        monkeypatch.setattr(index, "MIN_ORDERED", 4)


def draw_table(rng: random.Random) -> tuple[Any, Any, int, dict[str, Any], Search]:
    """Rows of both sides (None: a self-join), dimensions, arguments, and the oracle's search."""
    haversine = rng.random() < 0.25
    dims, shape = (2, "sphere") if haversine else (rng.randrange(2, 9), rng.choice(SHAPES))
    r = random_rows(rng, rng.choice([1, 20, 60]), dims, shape, bad=0.1)
    s = None if rng.random() < 0.25 else random_rows(rng, rng.choice([0, 1, 40, 300]), dims, shape, bad=0.1)
    by = rng.choice([None, None, "team", ["team", "level"]])
    names = () if by is None else tuple(by) if isinstance(by, list) else (by,)
    arguments: dict[str, Any] = {
        "k": rng.choice([1, 2, 7, 40]),
        "metric": "haversine" if haversine else "euclidean",
        "within": rng.choice([None, None, 3e6 if haversine else 0.25, 0]),
        "how": rng.choice(["inner", "left"]),
    }
    on = NAMES[:dims]
    search = Search((on, on), by=(names, names), **arguments)
    return r, s, dims, {"on": on, "by": by, "self_join": s is None, **arguments}, search


@pytest.mark.parametrize("seed", range(TABLES))
def test_tables_equal_the_oracle_on_every_device(seed: int) -> None:
    rng = random.Random(f"knn tables {seed}")
    for _ in range(10):
        r, s, dims, arguments, search = draw_table(rng)
        expected = knn_join(r, s, search)
        tables = as_arrow(r, dims), None if s is None else as_arrow(s, dims)
        results = [mr.knn_join(*tables, device=device, **arguments) for device in DEVICES]
        threads, options = rng.choice([1, 2, 3]), random_options(rng)
        results.append(mr.knn_join(*tables, **arguments, threads=threads, options=options))
        for device, found in zip((*DEVICES, options), results, strict=True):
            assert found_rows(found) == expected, (device, arguments)
            assert found.schema == results[0].schema
            assert found.select(WITHOUT_NAN).equals(results[0].select(WITHOUT_NAN)), device


@pytest.mark.parametrize("seed", range(STREAMS))
@pytest.mark.parametrize("device", DEVICES)
def test_streams_equal_the_oracle_on_every_device(seed: int, device: str) -> None:
    for number in range(3):
        case = Case(f"knn streams {seed} {number}")
        arguments = case.arguments if device == "cpu" else case.arguments | {"options": None}  # no partitions on GPUs
        points = [*KNN, "knn.launch", *device_points(device)]
        with (
            case_faults(points, f"{seed} {device} {number}") as injection,
            mr.KnnJoin(**arguments, device=device, **injection.fallback(device)) as opened,
        ):
            j = injection.retried(opened, ("rows", "pairs", "held", "pending"))
            for name, given in case.calls:
                found, expected = call(case, j, name, given)
                assert found == expected
            check_stats(case, j)
            assert found_rows(j.close()) == case.oracle.flush()
            assert j.stats.device == device or j.stats.fallback


@pytest.mark.parametrize("device", DEVICES[1:])
@pytest.mark.parametrize("metric", ["euclidean", "haversine"])
def test_the_device_answers_queries_without_ties(device: str, metric: Any) -> None:
    rng = random.Random(metric)
    r, s = (as_arrow(random_rows(rng, n, 2, "uniform"), 2) for n in (300, 4000))
    arguments: dict[str, Any] = {"on": NAMES[:2], "k": 5, "window": "2500 rows", "metric": metric}
    outputs = []
    for name in ("cpu", device):
        j = mr.KnnJoin(**arguments, device=name)
        j.push("s", s)
        outputs.append(j.push("r", r))
    assert outputs[0].equals(outputs[1])
    assert j.stats["device_queries"] == 300
    assert j.stats.strategy == f"{device} selected the candidates of 300 queries"
