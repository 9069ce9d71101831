"""ScaleJoin's stripes against brute force: any number of threads, keys, ranges and word widths; equal shares."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.base.types import Array
from millrace.host.join.contract import KeyProbe, Matches, SideProbes
from millrace.host.join.scalejoin import scan_kernel, stripes
from millrace.host.join.scalejoin.stripes import Stripes
from millrace.host.runtime.team import Team

WORDS: dict[str, tuple[Any, ...]] = {
    "32": (np.uint32,),
    "64": (np.uint64,),
    "32, 32": (np.uint32, np.uint32),
    "32, 64": (np.uint32, np.uint64),
}
TOP = 40


def probes_of(rng: np.random.Generator, kinds: tuple[Any, ...], lines: int, tuples: int) -> tuple[KeyProbe, ...]:
    """Disjoint ranges of every key, some of them empty, some up to the largest word."""
    probes = []
    for kind in kinds:
        cuts = np.sort(rng.integers(0, TOP, (2 * lines, tuples)), axis=0)
        low, high = cuts[::2].astype(kind), cuts[1::2].astype(kind)
        low[1:] += 1  # ranges of one tuple do not overlap; one with equal cuts becomes empty
        high[-1, ::5] = np.iinfo(kind).max
        probes.append(KeyProbe.of(low, high))
    return tuple(probes)


def drawn(rng: np.random.Generator, count: int, kind: Any) -> Array:
    return np.where(rng.random(count) < 0.1, np.iinfo(kind).max, rng.integers(0, TOP, count)).astype(kind)


def brute_force(positions: Array, words: list[Array], part: SideProbes) -> list[list[int]]:
    found = []
    for i in range(len(part)):
        fits = (positions >= part.begin[i]) & (positions < part.end[i]) & part.live[i]
        for column, probe in zip(words, part.probes, strict=True):
            fits &= ((column >= probe.low[:, i : i + 1]) & (column <= probe.high[:, i : i + 1])).any(axis=0)
        found.append(positions[fits].tolist())
    return found


def as_lists(found: Matches) -> list[list[int]]:
    assert found.positions is not None
    return [part.tolist() for part in np.split(found.positions, np.cumsum(found.counts)[:-1])]


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("lines", [1, 2])
@pytest.mark.parametrize("kinds", WORDS)
def test_stripes_find_what_brute_force_finds(
    threads: int, lines: int, kinds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window that slides, with tuples that cannot match; small memory, so that stripes stop and go on."""
    monkeypatch.setattr(stripes, "MIN_CAPACITY", 16)
    monkeypatch.setattr(stripes, "MAX_KEPT", 1 << 13)
    rng = np.random.default_rng(threads * lines)
    words = WORDS[kinds]
    side = Stripes(tuple(np.dtype(word) for word in words), Team(threads))
    columns: list[Array] = [np.zeros(0, word) for word in words]
    positions, end, oldest, compared = np.zeros(0, np.int64), 0, 0, 0
    for _ in range(6):
        count = int(rng.integers(0, 900))
        live = rng.random(count) < 0.9
        fresh = tuple(drawn(rng, count, word) for word in words)
        side.append(end, fresh, live)
        positions = np.concatenate([positions, end + np.flatnonzero(live)])
        columns = [np.concatenate([old, new[live]]) for old, new in zip(columns, fresh, strict=True)]
        end += count
        tuples = int(rng.integers(0, 40))
        stop = np.sort(rng.integers(oldest, end + 1, tuples))
        start = np.maximum(stop - rng.integers(0, 1200, tuples), oldest)
        part = SideProbes(0, rng.random(tuples) < 0.9, start, stop, (), probes_of(rng, words, lines, tuples))
        found, counted = side.probe(part, True), side.probe(part, False)
        expected = brute_force(positions, columns, part)
        assert as_lists(found) == (expected or [[]])
        assert counted.counts.tolist() == found.counts.tolist() == [len(one) for one in expected]
        compared += 2 * sum(
            int(((positions >= b) & (positions < e)).sum())
            for b, e, alive in zip(part.begin, part.end, part.live, strict=True)
            if alive
        )
        oldest = int(rng.integers(oldest, end + 1))
        side.drop_before(oldest)
    assert sum(side.compared) == compared
    assert side.moves > 0


def test_many_matches_grow_the_memory_and_are_all_found() -> None:
    side = Stripes((np.dtype(np.uint32),), Team(2))
    n = 3 * scan_kernel.CHUNK
    side.append(0, (np.zeros(n, np.uint32),), np.ones(n, np.bool_))
    every = KeyProbe.of(np.zeros((1, 20), np.uint32), np.zeros((1, 20), np.uint32))
    found = side.probe(SideProbes(0, np.ones(20, np.bool_), np.zeros(20, np.int64), np.full(20, n), (), (every,)), True)
    assert found.positions is not None
    assert (found.positions.reshape(20, n) == np.arange(n)).all()


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize("skew", ["uniform", "one value", "sorted"])
def test_all_threads_compare_equally_many_pairs(skew: str) -> None:
    """The share of each within 2% of the mean, whatever the keys (ScaleJoin, section V)."""
    rng = np.random.default_rng(1)
    threads, rows = 4, 2000
    draw = {"uniform": rng.integers(0, 1000, rows), "one value": np.zeros(rows), "sorted": np.arange(rows)}[skew]
    j = mr.WindowJoin("abs(r.x - s.x) <= 1", window="5000 rows", index="scan", threads=threads, output="count")
    for turn in range(6):
        j.push("rs"[turn % 2], pa.table({"x": draw.astype(np.int32)}))
    shares = [j.stats[f"comparisons_{i}"] for i in range(threads)]
    assert sum(shares) == j.stats["comparisons"] > 0
    mean = sum(shares) / threads
    assert max(abs(share - mean) for share in shares) <= 0.02 * mean


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize(
    "on",
    [
        "abs(r.x - s.x) <= 2",
        "r.x < s.x AND r.y > s.y",
        "r.x <> s.x",
        "r.x <> s.x AND r.y = s.y",
        "r.x * s.y <= 5",
        "abs(r.x - s.x) <= 2 AND r.x * s.y <= 5",
        "r.x < s.x AND r.y > s.y AND r.z <= s.z AND r.x + 9 > s.x",
        "abs(r.x - s.x) <= 1 OR r.x - s.x BETWEEN 5 AND 7",
        "s.x BETWEEN r.x AND r.y",
    ],
)
def test_any_condition_and_any_number_of_threads_gives_the_same(on: str) -> None:
    rng = np.random.default_rng(len(on))

    def rows(count: int) -> pa.Table:
        columns = {name: rng.integers(-9, 10, count) for name in "xyz"}
        return pa.table({n: pa.array(c, mask=rng.random(count) < 0.05) for n, c in columns.items()})

    pushes = [("rs"[i % 2], rows(int(rng.integers(1, 120)))) for i in range(8)]
    outputs = []
    for threads in (1, 2, 4):
        schemas = dict.fromkeys(("r", "s"), rows(0).schema)
        j = mr.WindowJoin(on, window="150 rows", index="scan", threads=threads, schemas=schemas)
        outputs.append(pa.concat_tables([j.push(*push) for push in pushes]))
    assert outputs[0].num_rows > 0
    assert outputs[0].equals(outputs[1])
    assert outputs[0].equals(outputs[2])
