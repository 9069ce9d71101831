"""A held table gives a stream of batches the same pairs as `mr.join` of the full table, whichever side is held."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.join_parts.table_probe import TableProbe
from millrace.registry import BACKENDS, join_pairs
from tests.host import faults

CONDITIONS = [
    "abs(r.x - s.x) <= 2",
    "r.x = s.x AND r.y < s.y",
    "r.x < s.x AND r.y > s.y",
    "r.x <> s.x",
    "r.x * s.x > 30",
    "abs(r.x - s.x) <= 1 OR r.x - s.x BETWEEN 5 AND 6",
]
DEVICES = [("auto", "cpu"), ("btree", "cpu"), ("bisort", "opencl:0")]


def table(rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    x = pa.array(rng.integers(-20, 20, rows), mask=rng.random(rows) < 0.1)
    return pa.table({"x": x, "y": rng.integers(0, 9, rows)})


def pairs(given: pa.Table) -> set[tuple[int, int]]:
    return set(zip(given["r_seq"].to_pylist(), given["s_seq"].to_pylist(), strict=True))


@pytest.mark.parametrize("on", CONDITIONS)
@pytest.mark.parametrize("side", ["r", "s"])
@pytest.mark.parametrize(("index", "device"), DEVICES)
def test_batches_find_what_the_full_table_finds(on: str, side: str, index: str, device: str) -> None:
    r, s = table(300, 1), table(200, 2)
    held, probing = (s, r) if side == "s" else (r, s)
    assert (index, device) in join_pairs()
    if "*" in on and index != "auto":
        with pytest.raises(mr.ArgumentError, match="cannot serve this condition"):
            TableProbe.of(on, held, probing.schema, side=side, index=index, device=device)
        return
    probe = TableProbe.of(on, held, probing.schema, side=side, index=index, device=device, threads=1)
    found: list[tuple[int, int]] = []
    start = 0
    for size in (1, 0, 50, 7, len(probing)):
        batch = probing.slice(start, size)
        answer = probe.find_partners(batch)
        assert answer.counts.tolist() == np.bincount(answer.rows, minlength=batch.num_rows).tolist()
        assert probe.find_partners(batch, want_pairs=False).counts.tolist() == answer.counts.tolist()
        rows, partners = (answer.rows + start).tolist(), answer.partners.tolist()
        found += zip(rows, partners, strict=True) if side == "s" else zip(partners, rows, strict=True)
        start += batch.num_rows
    assert len(found) == len(set(found))
    assert set(found) == pairs(mr.join(r, s, on=on, output="seqs"))
    stats: dict[str, Any] = probe.stats
    assert (stats["held"], stats["asked"], stats["pairs"]) == (len(held), 2 * len(probing), 2 * len(found))
    assert stats["null_keys"][side] == held["x"].null_count
    probe.close()


def test_a_fault_is_raised_or_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKENDS, "faulty", faults.MODULE)
    r, s, on = table(2000, 3), table(2000, 4), "r.x - s.x BETWEEN 0 AND 1 AND r.y = s.y"
    wanted = TableProbe.of(on, s, r.schema, device="cpu").find_partners(r, want_pairs=False).counts
    probe = TableProbe.of(on, s, r.schema, device="faulty", index="bisort", fallback="cpu")
    faults.arm("launch", 1)
    assert probe.find_partners(r, want_pairs=False).counts.tolist() == wanted.tolist()
    assert not faults.disarm()
    assert probe.stats["device"] == "cpu"
    assert "lost its launch" in str(probe.fallback)
    alone = TableProbe.of(on, s, r.schema, device="faulty", index="bisort")
    faults.arm("launch", 1)
    with pytest.raises(mr.DeviceFault):
        alone.find_partners(r)
    assert alone.find_partners(r, want_pairs=False).counts.tolist() == wanted.tolist(), "a failed probe changes nothing"


def test_bad_arguments_are_reported() -> None:
    r = table(3, 0)
    with pytest.raises(mr.ArgumentError, match="side='q'"):
        TableProbe.of("r.x = s.x", r, r.schema, side="q")
    with pytest.raises(mr.SchemaError, match="has no such column"):
        TableProbe.of("r.q = s.x", r, r.schema)
