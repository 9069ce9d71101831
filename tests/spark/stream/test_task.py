"""A shard of a streaming join, without Spark: pairs by a brute-force oracle, state, older and newer caches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.join_parts.bound_tables import BoundTables
from millrace.spark.cluster.task import DeviceRequest, TaskDevice
from millrace.spark.exec.batch_bytes import DEFAULT_LIMITS
from millrace.spark.stream import run_cache, run_files, state, task
from millrace.spark.stream.packed_batches import FIRST, SHARD, Packing, _murmur, packer, shard_keys, unpack_input
from millrace.spark.stream.plan import Side, StreamPlan, first_tick, watermark_ms
from millrace.spark.stream.state import EncodedRows, Manifest, StoredRun, read_manifest, to_merge
from millrace.spark.stream.task import ShardBatch, ShardInput
from millrace.state.manifest import unseal

CPU = TaskDevice("cpu", False, 1, 1)
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("x", pa.int64())])
Pairs = Counter[tuple[int, int]]


class Memory:
    """A state store that can be copied, as checkpoints are."""

    def __init__(self) -> None:
        self.stored: bytes | None = None
        self.runs: dict[str, tuple[bytes, int]] = {}
        self.timer: int | None = None

    def copy(self) -> Memory:
        other = Memory()
        other.stored, other.runs, other.timer = self.stored, dict(self.runs), self.timer
        return other

    def manifest(self) -> bytes | None:
        return self.stored

    def run(self, name: str) -> bytes | None:
        return self.runs[name][0] if name in self.runs else None

    def keep(self, manifest: bytes) -> None:
        self.stored = manifest

    def add(self, run: StoredRun, data: bytes) -> None:
        self.runs[run.name] = data, run.rows

    def remove(self, run: StoredRun) -> None:
        del self.runs[run.name]

    def set_timer(self, before: int | None, at: int | None) -> None:
        assert before == self.timer
        self.timer = at

    def rows(self) -> int:
        return sum(rows for _, rows in self.runs.values())


def plan(after: int = 100, before: int = 60, on: str = "abs(r.x - s.x) <= 2", **arguments: str) -> StreamPlan:
    side = Side(SCHEMA, "ts", ("x",), ("x",))
    given = tuple(sorted({"on": on, **arguments}.items()))
    return StreamPlan(on, side, side, after, before, True, DeviceRequest("cpu", None, mr.__version__), given)


def rows(rng: Random, number: int, count: int, start: int, stop: int) -> pa.Table:
    return pa.table(
        {
            "id": range(number, number + count),
            "ts": [rng.randrange(start, stop) for _ in range(count)],
            "x": [rng.randrange(60) for _ in range(count)],
        },
        schema=SCHEMA,
    )


def encoded(table: pa.Table) -> EncodedRows:
    return EncodedRows.of(pa.record_batch([column.combine_chunks() for column in table.columns], schema=table.schema))


def own_rows(side: str, table: pa.Table) -> ShardInput:
    return ShardInput(side, (encoded(table),), 0, table.num_rows)


def table_of(given: ShardInput) -> pa.Table:
    return pa.Table.from_batches([part.rows for part in given.parts])


def step(joined: StreamPlan, store: Memory, watermark: int, *inputs: ShardInput) -> tuple[Pairs, dict[str, int]]:
    batch = ShardBatch(joined, store, CPU, watermark)
    pairs: Pairs = Counter()
    for table in batch.join(inputs):
        pairs.update(zip(table["r_id"].to_pylist(), table["s_id"].to_pylist(), strict=True))
    assert set(store.runs) == read_manifest(store.stored, dict(joined.arguments)).names()
    return pairs, batch.counts()


def oracle(r: list[dict[str, Any]], s: list[dict[str, Any]], after: int, before: int) -> Pairs:
    return Counter(
        (a["id"], b["id"]) for a in r for b in s if abs(a["x"] - b["x"]) <= 2 and -after <= a["ts"] - b["ts"] <= before
    )


@pytest.fixture(autouse=True)
def empty_cache() -> Iterator[None]:
    run_cache._entries().clear()
    yield
    run_cache._entries().clear()


@pytest.mark.parametrize("seed", range(6))
def test_pairs_are_those_of_brute_force(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "MIN_CUT_ROWS", 16)
    monkeypatch.setattr(task, "COMBINED_ROWS", (0, 1 << 19)[seed % 2])
    rng = Random(seed)
    joined, store, number, watermark = plan(rng.choice([0, 30, 200]), rng.choice([0, 30, 200])), Memory(), 0, 0
    kept: dict[str, list[dict[str, Any]]] = {"r": [], "s": []}
    pairs: Pairs = Counter()
    late = counted = 0
    for batch in range(12):
        inputs = []
        for side in "rs":
            count = rng.randrange(80)
            table = rows(rng, number, count, max(1, batch * 50 - 160), batch * 50 + rng.choice([50, 600]))
            number += count
            inputs.append(own_rows(side, table))
            fine = [row for row in table.to_pylist() if row["ts"] >= watermark]
            late += count - len(fine)
            kept[side] += fine
        found, counts = step(joined, store, watermark, *inputs)
        pairs += found
        counted += counts["r_late"] + counts["s_late"]
        watermark = max(watermark, batch * 50 - 40)
    assert pairs == oracle(kept["r"], kept["s"], joined.after, joined.before)
    assert counted == late > 0


def test_broadcast_rows_match_once() -> None:
    rng, joined, stores = Random(1), plan(), [Memory() for _ in range(3)]
    pairs: Pairs = Counter()
    everything: dict[str, list[dict[str, Any]]] = {"r": [], "s": []}
    for batch in range(4):
        tables = {side: rows(rng, 1000 * batch + (500 if side == "s" else 0), 90, 1, 300) for side in "rs"}
        for at, store in enumerate(stores):
            parts = {side: tuple(encoded(tables[side].slice(30 * i, 30)) for i in range(3)) for side in "rs"}
            found, counts = step(joined, store, 0, *(ShardInput(side, parts[side], at, 30) for side in "rs"))
            pairs += found
            assert counts["r_rows"] == 30
            assert counts["s_held"] == 30 * (batch + 1)
        for side in "rs":
            everything[side] += tables[side].to_pylist()
    assert pairs == oracle(everything["r"], everything["s"], joined.after, joined.before)


def test_rows_are_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard stores the bytes that it got; only a part that loses a row is encoded again."""
    rng, joined, store = Random(11), plan(), Memory()
    parts = [own_rows("r", rows(rng, 100 * n, 20, 500, 600)) for n in range(3)]
    late = own_rows("r", rows(rng, 400, 20, 450, 600))
    again: list[int] = []

    def encode(rows: pa.RecordBatch) -> EncodedRows:
        again.append(rows.num_rows)
        return EncodedRows(rows, rows.serialize())

    monkeypatch.setattr(EncodedRows, "of", encode)
    monkeypatch.setattr(task, "pack_rows", lambda table: pytest.fail("packed again"))
    _, counts = step(joined, store, 500, *parts)
    assert not again
    ((data, count),) = store.runs.values()
    assert count == counts["r_held"] == 60
    assert all(one.parts[0].message.to_pybytes() in data for one in parts)
    assert state.unpack_rows(data).equals(pa.concat_tables([table_of(one) for one in parts]))
    _, counts = step(joined, store, 500, parts[0], late)
    assert again == [20 - counts["r_late"]] != [20]


def test_a_batch_is_cut_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "MIN_CUT_ROWS", 16)
    cuts: list[int] = []
    cut = task.NewRows.cut

    def counted(new: task.NewRows, window: int) -> list[task.NewRows]:
        parts = cut(new, window)
        cuts.append(len(parts))
        return parts

    monkeypatch.setattr(task.NewRows, "cut", counted)
    rng, joined, store = Random(12), plan(after=10, before=10), Memory()
    given = [own_rows(side, rows(rng, n, 200, 1, 200)) for n, side in ((0, "r"), (1000, "s"))]
    pairs, counts = step(joined, store, 0, *given)
    assert cuts == [10, 10], "each side once: stored and searched in the same parts"
    assert counts["runs"] == 20
    assert pairs == oracle(table_of(given[0]).to_pylist(), table_of(given[1]).to_pylist(), 10, 10)


def test_a_run_is_bound_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later batches search a run by the probe that the first search made."""
    monkeypatch.setattr(task, "COMBINED_ROWS", 0)
    bound: list[int] = []
    bind = BoundTables.of

    def counted(*given: Any) -> BoundTables:
        bound.append(1)
        return bind(*given)

    monkeypatch.setattr(BoundTables, "of", counted)
    rng, joined, store = Random(13), plan(after=10**6, before=10**6), Memory()
    for n in range(3):
        step(joined, store, 0, own_rows("s", rows(rng, n, 40, 1, 100)))
    for n in range(4):
        step(joined, store, 0, own_rows("r", rows(rng, 1000 + n, 40, 1, 100)))
    assert len(bound) == 3, "one for each run of s"


def test_packed_batches_hold_the_rows_of_each_shard() -> None:
    table = rows(Random(14), 0, 90, 1, 100)
    shard = [i * 7 % 3 for i in range(90)]
    bulk = table.add_column(0, SHARD, pa.array(shard, pa.int32())).add_column(
        1, FIRST, pa.array([i % 4 > 0 for i in range(90)])
    )
    for broadcast in (False, True):
        packing = Packing("s", plan().s, (5, 6, 7), broadcast, True, DEFAULT_LIMITS)
        (packed,) = packer(packing)([bulk.to_batches()[0]])
        inputs = [
            unpack_input(plan(), row["of_s"], row["data"], row["own"], row["counted"]) for row in packed.to_pylist()
        ]
        assert packed["shard"].to_pylist() == [5, 6, 7]
        for number, given in enumerate(inputs):
            assert given.side == "s"
            assert len(given.parts) == (3 if broadcast else 1)
            own = given.parts[given.own].rows
            assert sorted(own["id"].to_pylist()) == [i for i in range(90) if shard[i] == number]
            counted = own["id"].to_pylist()[: given.counted]
            assert sorted(counted) == [i for i in range(90) if shard[i] == number and i % 4 > 0]


def test_dead_runs_are_removed_by_rows_and_by_timer() -> None:
    rng, joined, store = Random(2), plan(after=100, before=60), Memory()
    step(joined, store, 0, own_rows("r", rows(rng, 0, 50, 1000, 1010)), own_rows("s", rows(rng, 50, 50, 1000, 1010)))
    assert store.rows() == 100
    newest = max(run.high for run in read_manifest(store.stored, dict(joined.arguments)).of("s"))
    assert store.timer == newest + 60 + 1
    batch = ShardBatch(joined, store, CPU, newest + 60 + 1)
    batch.expire()
    assert batch.counts()["s_expired"] == 50
    assert batch.counts()["r_held"] == store.rows() == 50
    assert run_cache.cached() == frozenset(store.runs)
    _, counts = step(joined, store, 2000, own_rows("r", rows(rng, 200, 1, 2000, 2001)))
    assert counts["r_expired"] == 50
    assert store.rows() == 1


def test_small_runs_are_merged_and_written_seldom() -> None:
    rng, joined, store = Random(3), plan(after=5000, before=5000), Memory()
    written = own = 0
    most = 0
    for batch in range(1200):
        table = rows(rng, batch * 10, 10, 1000 + batch * 10, 1010 + batch * 10)
        _, counts = step(joined, store, max(0, batch * 10 - 10), own_rows("r", table))
        if batch >= 600:
            written, own = written + counts["written"], own + len(state.pack_rows(table))
        most = max(most, len(store.runs))
    assert most < 40
    assert written < 5 * own


def test_rows_that_cannot_match_are_counted_and_not_kept() -> None:
    table = pa.table({"id": [1, 2, 3, 4], "ts": [None, 100, 100, 5], "x": [1, None, 3, 4]}, schema=SCHEMA)
    joined, store = plan(), Memory()
    _, counts = step(joined, store, 50, own_rows("r", table))
    assert {name: counts[f"r_{name}"] for name in ("rows", "null_times", "null_keys", "late", "held")} == {
        "rows": 4,
        "null_times": 1,
        "null_keys": 1,
        "late": 1,
        "held": 1,
    }


def test_a_task_run_again_meets_an_older_or_a_newer_cache() -> None:
    rng, joined = Random(4), plan(after=400, before=400)
    store, checkpoints, outputs = Memory(), [], []
    batches = [
        [
            own_rows(side, rows(rng, 1000 * n + (500 if side == "s" else 0), 40, 100 * n + 1, 100 * n + 100))
            for side in "rs"
        ]
        for n in range(10)
    ]
    for number, inputs in enumerate(batches):
        checkpoints.append(store.copy())
        outputs.append(step(joined, store, max(0, 100 * number - 50), *inputs)[0])
    for number in (9, 2, 5, 0, 7):  # each on a worker whose cache is ahead of it or behind it
        again = checkpoints[number].copy()
        assert step(joined, again, max(0, 100 * number - 50), *batches[number])[0] == outputs[number]
        names = {name for _, owner, name in run_cache._entries() if owner == _owner(again)}
        assert names == set(again.runs), "pruned to the manifest"


def _owner(store: Memory) -> str:
    assert store.stored is not None
    return str(unseal(state.KIND, state.FORMAT, store.stored)["owner"])


def test_the_cache_is_limited_in_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_cache, "MAX_BYTES", 3000)
    rng, joined = Random(5), plan()
    for number in range(5):
        step(joined, Memory(), 0, own_rows("r", rows(rng, number, 50, 1, 100)))
    assert 1 <= len(run_cache.cached()) <= 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"on": "abs(r.x - s.x) <= 3"}, r"other arguments: on was abs\(r.x - s.x\) <= 2, now abs\(r.x - s.x\) <= 3"),
        ({"splits": "[1.0]"}, r"splits was None, now \[1.0\]"),
    ],
)
def test_other_arguments_are_refused(change: dict[str, str], words: str) -> None:
    given: dict[str, Any] = {"on": "abs(r.x - s.x) <= 2", **change}
    store = Memory()
    step(plan(), store, 0, own_rows("r", rows(Random(6), 0, 5, 1, 9)))
    message = f"cannot continue from this checkpoint: .*{words}.*new checkpoint location"
    with pytest.raises(mr.StateError, match=message):
        ShardBatch(plan(**given), store, CPU, 0)


def test_another_version_and_altered_runs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    store, joined = Memory(), plan()
    step(joined, store, 0, own_rows("r", rows(Random(7), 0, 5, 1, 9)))
    run_cache._entries().clear()
    name, (data, count) = next(iter(store.runs.items()))
    for changed, words in (({}, "missing"), ({name: (data[:-8] + b"altered.", count)}, "altered")):
        store.runs = changed
        with pytest.raises(mr.StateError, match=words):
            step(joined, store, 0, own_rows("s", rows(Random(8), 9, 5, 1, 9)))
    monkeypatch.setattr(state, "FORMAT", 3)
    with pytest.raises(mr.StateError, match="the state has format 2; this version of millrace reads format 3"):
        ShardBatch(joined, store, CPU, 0)


def test_manifests_come_back_as_they_were() -> None:
    manifest, run = Manifest({"on": "x"}).with_run("r", b"rows", 3, (1, 9), 2)
    assert read_manifest(manifest.pack(), {"on": "x"}) == manifest
    assert manifest.without((run,)).runs == ()


def test_runs_are_merged_by_level_and_span() -> None:
    runs = tuple(StoredRun(f"{i}-x", "r", 10, i * 10, i * 10 + 9) for i in range(9))
    assert [len(group) for group in to_merge(runs, 1000, 1000)] == [4, 4]
    assert list(to_merge(runs, 100, 1000)) == []
    mixed = (*runs[:3], StoredRun("9-x", "r", 10, 90, 99, level=1))
    assert list(to_merge(mixed, 10_000, 1000)) == []


def test_times_near_the_ends_of_64_bits() -> None:
    joined = plan(after=2**62, before=2**62)
    ends = np.array([-(2**63), 2**63 - 1, 0])
    assert joined.within_window(ends, ends[::-1].copy()).tolist() == [False, True, False]


def test_keys_of_shards_are_distributed_evenly() -> None:
    keys = np.array(shard_keys(8))
    for partitions in (1, 2, 4, 8, 200):
        assert (_murmur(keys) % partitions).tolist() == [i % partitions for i in range(8)]
    assert _murmur(np.array([0, 1])).tolist() == [933211791, -559580957], "as spark.sql('SELECT hash(0), hash(1)') says"


def test_a_worker_reads_the_run_files_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},other")
    rng, joined, store = Random(9), plan(after=400, before=400), Memory()
    batches = [own_rows(side, rows(rng, n, 40, 1, 100)) for n, side in ((0, "r"), (100, "s"), (200, "r"))]
    step(joined, store, 0, batches[0])
    missing = store.copy()
    missing.run = lambda name: pytest.fail(f"{name} was read from the store")  # type: ignore[method-assign]
    run_cache._entries().clear()  # as on a worker that has never seen this shard
    fetched, _ = step(joined, missing, 0, batches[1])
    for path in tmp_path.glob("millrace-runs/*/*"):
        path.unlink()
    run_cache._entries().clear()  # and on another machine: missing runs are read from the store, and published
    assert step(joined, store, 0, batches[1])[0] == fetched
    assert fetched == oracle(table_of(batches[0]).to_pylist(), table_of(batches[1]).to_pylist(), 400, 400)
    step(joined, store, 0, batches[2])
    published = {path.name for path in tmp_path.glob(f"millrace-runs/*-{_owner(store)}/*")}
    assert published == set(store.runs), "pruned to the manifest"


def test_run_files_are_limited_in_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setattr(run_files, "MAX_BYTES", 3000)
    rng, joined = Random(10), plan()
    for number in range(5):
        step(joined, Memory(), 0, own_rows("r", rows(rng, number, 50, 1, 100)))
    sizes = [path.stat().st_size for path in tmp_path.glob("millrace-runs/*/*")]
    assert 1 <= len(sizes) <= 3
    assert sum(sizes) <= 3000
    assert run_files.fetch("nobody", "nothing") is None


def test_integer_times_of_any_size_fit_sparks_watermark() -> None:
    ticks = [0, 1, 5000, 2**52 - 1, 2**52, 2**52 + 1, 2**52 + 4096, 1_731_900_000_123_456_789, 2**63 - 1]
    seen = [watermark_ms(tick) for tick in ticks]
    assert seen == sorted(seen)
    assert seen[:5] == ticks[:5]
    assert max(seen) * 1000 < 2**63
    for tick in ticks:
        assert tick - 2048 < first_tick(watermark_ms(tick)) <= tick
        assert first_tick(watermark_ms(tick) + 1) > tick


def test_a_checkpoint_continues_with_the_same_condition_in_other_words() -> None:
    stored = Manifest({"on": "abs(r.x - s.x) <= 5", "window": "1"}).pack()
    assert read_manifest(stored, {"on": "ABS( r.x-s.x ) <= 5", "window": "1"}).runs == ()
    with pytest.raises(mr.StateError, match="on was"):
        read_manifest(stored, {"on": "abs(r.x - s.x) <= 6", "window": "1"})
    with pytest.raises(mr.StateError, match="window was"):
        read_manifest(stored, {"on": "ABS(r.x - s.x) <= 5", "window": "2"})
