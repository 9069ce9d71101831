"""`state` and `restore`: small deltas, content-named runs, and a join that goes on as if it had never stopped."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.state import join_state as state_module
from millrace.state.manifest import seal, unseal

COUNT: dict[str, Any] = {"on": "abs(r.x - s.x) <= 2", "window": "40 rows"}
SETTINGS: dict[str, dict[str, Any]] = {
    "count": COUNT,
    "count scan": {**COUNT, "index": "scan"},
    "asymmetric": {**COUNT, "window": ("10 rows", "60 rows")},
    "time": {**COUNT, "window": "30", "time": "ts"},
    "lateness": {**COUNT, "window": ("5", "30"), "time": "ts", "lateness": 6},
    "count by time": {**COUNT, "time": "ts", "lateness": 3},
    "sources": {**COUNT, "window": "30", "time": "ts", "sources": {"r": 2, "s": 3}},
    "self-join": {**COUNT, "self_join": True},
    "self-join by time": {**COUNT, "window": "20", "time": "ts", "self_join": True, "lateness": 4},
    "counting": {**COUNT, "output": "count"},
    "seqs": {**COUNT, "output": "seqs", "window": "30", "time": "ts"},
    "rechecked": {**COUNT, "on": "abs(r.x - s.x) <= 2 AND r.y < s.y"},
    "nothing to search": {**COUNT, "on": "r.x * s.x > 40"},
    "schemas": {
        **COUNT,
        "schemas": {"r": pa.schema([("ts", pa.int64()), ("x", pa.int64()), ("y", pa.float64()), ("t", pa.string())])},
    },
}
every_setting = pytest.mark.parametrize("name", SETTINGS)


def rows(rng: np.random.Generator, count: int, now: int) -> pa.Table:
    """Rows around a time, some late, some with nulls."""
    x = [None if rng.random() < 0.1 else int(v) for v in rng.integers(0, 20, count)]
    ts = [None if rng.random() < 0.05 else int(now + v) for v in rng.integers(-8, 8, count)]
    texts = pa.array([f"row {int(n)}" for n in rng.integers(0, 1000, count)], pa.string())
    return pa.table({"ts": pa.array(ts, pa.int64()), "x": pa.array(x, pa.int64()), "y": rng.random(count), "t": texts})


def stream(arguments: dict[str, Any], pushes: int = 24) -> list[tuple[str, pa.Table, int]]:
    rng = np.random.default_rng(17)
    sides = "r" if arguments.get("self_join") else "rs"
    sources = arguments.get("sources") or {}
    plan = []
    for i in range(pushes):
        side = sides[int(rng.integers(len(sides)))]
        source = int(rng.integers(sources.get(side, 1)))
        plan.append((side, rows(rng, int(rng.integers(0, 12)), 4 * i), source))
    return plan


def run(j: mr.WindowJoin, plan: list[tuple[str, pa.Table, int]]) -> list[pa.Table]:
    return [j.push(side, batch, source=source) for side, batch, source in plan]


MEANING = ("rows", "late", "null_times", "null_keys", "pending", "held", "pairs", "device", "index")


def meaning(j: mr.WindowJoin) -> dict[str, Any]:
    return {name: j.stats[name] for name in MEANING}


class Store:
    """What a user keeps: the runs by name and the last manifest."""

    def __init__(self) -> None:
        self.runs: dict[str, bytes] = {}
        self.manifest = b""
        self.written: list[int] = []

    def save(self, j: mr.WindowJoin) -> mr.StateDelta:
        delta = j.state()
        assert not set(delta.added) & set(self.runs), "a run that is stored already was written again"
        self.runs |= delta.added
        self.manifest = delta.manifest
        for name in delta.removed:
            del self.runs[name]
        self.written.append(sum(len(data) for data in delta.added.values()))
        return delta

    def restore(self, arguments: dict[str, Any]) -> mr.WindowJoin:
        return mr.WindowJoin.restore(self.manifest, self.runs, **arguments)


@every_setting
def test_a_restored_join_goes_on_with_identical_output(name: str) -> None:
    """Stop anywhere, from a store that followed every delta; rows still waiting included."""
    arguments = SETTINGS[name]
    plan = stream(arguments)
    j = mr.WindowJoin(**arguments)
    wanted, stats = [], []
    for step in plan:
        wanted += run(j, [step])
        stats.append(meaning(j))
    last = j.close()
    assert sum(t.num_rows for t in [*wanted, last]) >= 15
    store, k = Store(), mr.WindowJoin(**arguments)
    for i, step in enumerate(plan):
        if i % 5 in (0, 3):
            store.save(k)
            before = k.stats
            k = store.restore(arguments)
            assert k.stats == before
        found = run(k, [step])[0]
        assert found.schema == wanted[i].schema
        assert found.combine_chunks().equals(wanted[i].combine_chunks())
        assert meaning(k) == stats[i]
    assert k.close().combine_chunks().equals(last.combine_chunks())


@every_setting
def test_two_joins_restored_from_one_state_write_identical_states(name: str) -> None:
    arguments = SETTINGS[name]
    plan = stream(arguments)
    j, store = mr.WindowJoin(**arguments), Store()
    run(j, plan[:10])
    store.save(j)
    twins = [store.restore(arguments) for _ in range(2)]
    for twin in twins:
        run(twin, plan[10:])
    first, second = (twin.state() for twin in twins)
    assert first.added == second.added
    assert first.removed == second.removed


@every_setting
def test_taking_the_state_changes_nothing(name: str) -> None:
    arguments = SETTINGS[name]
    plan = stream(arguments)
    j, k = mr.WindowJoin(**arguments), mr.WindowJoin(**arguments)
    for step in plan:
        j.state()
        assert run(j, [step])[0].equals(run(k, [step])[0])
        assert meaning(j) == meaning(k)
    assert j.close().equals(k.close())


def test_an_unused_join_can_be_stored_and_restored() -> None:
    j, store = mr.WindowJoin(**COUNT), Store()
    delta = store.save(j)
    assert (delta.added, delta.removed) == ({}, ())
    k = store.restore(COUNT)
    assert k.stats == j.stats
    run(k, stream(COUNT))


def test_a_delta_has_only_what_is_new_and_a_second_one_nothing() -> None:
    j, store = mr.WindowJoin(**COUNT), Store()
    run(j, stream(COUNT))
    first = store.save(j)
    assert first.added
    again = store.save(j)
    assert (again.added, again.removed) == ({}, ())
    assert again.manifest == first.manifest


def test_runs_are_named_by_their_content() -> None:
    j, store = mr.WindowJoin(**COUNT), Store()
    for step in stream(COUNT):
        run(j, [step])
        for name, data in store.save(j).added.items():
            assert name == hashlib.sha256(data).hexdigest()
            assert isinstance(data, bytes)


def test_removed_runs_are_exactly_those_no_longer_needed() -> None:
    """`Store` deletes them; what is left restores, and holds no more than the windows and what waits."""
    arguments = SETTINGS["time"]
    j, store = mr.WindowJoin(**arguments), Store()
    for step in stream(arguments, pushes=60):
        run(j, [step])
        store.save(j)
        store.restore(arguments)
    stored = sum(pa.ipc.open_stream(data).read_all().num_rows for data in store.runs.values())
    assert stored <= 4 * (j.stats["held"] + j.stats["pending"]) + 50
    assert len(store.runs) < 30


def test_bytes_written_per_call_do_not_grow_with_the_window() -> None:
    """The same stream through windows of very different size: what each call of `state` writes stays alike."""
    rng = np.random.default_rng(5)
    batches = [pa.table({"x": rng.integers(0, 10**9, 50), "pad": ["x" * 50] * 50}) for _ in range(400)]
    totals, manifests = {}, {}
    for window in (500, 50_000):
        j, store = mr.WindowJoin(on="r.x = s.x", window=f"{window} rows", output="count"), Store()
        for batch in batches:
            j.push("r", batch)
            store.save(j)
        assert j.stats["held"] == min(window, 20_000)
        totals[window] = np.array(store.written[-200:])
        manifests[window] = len(store.manifest)
    one_batch = len(next(iter(_only_delta(batches[0]).values())))
    assert totals[500].mean() < 8 * one_batch
    # Merging small runs into larger ones writes a row again a few times, however large the window is.
    assert totals[50_000].mean() < 14 * one_batch
    assert np.median(totals[50_000]) < 4 * one_batch
    assert manifests[50_000] < manifests[500] + 4000


def _only_delta(batch: pa.Table) -> dict[str, bytes]:
    j = mr.WindowJoin(on="r.x = s.x", window="500 rows")
    j.push("r", batch)
    return j.state().added


def test_a_restored_join_does_not_write_its_runs_again() -> None:
    j, store = mr.WindowJoin(**COUNT), Store()
    run(j, stream(COUNT))
    store.save(j)
    k = store.restore(COUNT)
    delta = k.state()
    assert (delta.added, delta.removed) == ({}, ())
    assert delta.manifest == store.manifest


def test_waiting_rows_are_stored_and_partly_taken_ones_are_not_taken_twice() -> None:
    arguments: dict[str, Any] = {"on": "r.x = s.x", "window": "100", "time": "ts"}
    waiting = pa.table({"ts": list(range(20)), "x": [1] * 20})
    j, store = mr.WindowJoin(**arguments), Store()
    j.push("r", waiting)
    store.save(j)
    j.advance("s", 9)
    delta = store.save(j)
    assert j.stats["pending"] == 10
    k = store.restore(arguments)
    assert k.stats == j.stats
    late = pa.table({"ts": [9, 30], "x": [1, 1]})
    found = [join.push("s", late) for join in (j, k)]
    assert found[0].equals(found[1])
    assert j.close().equals(k.close())
    assert j.stats["pairs"] == k.stats["pairs"] == 40
    assert delta.manifest


def test_what_restore_needs_is_only_the_named_runs() -> None:
    j, store = mr.WindowJoin(**COUNT), Store()
    run(j, stream(COUNT))
    store.save(j)
    store.runs["unrelated"] = b"something else"
    assert store.restore(COUNT).stats == j.stats


def test_threads_may_differ_after_a_restore() -> None:
    j, store = mr.WindowJoin(**COUNT, threads=1), Store()
    plan = stream(COUNT)
    run(j, plan[:12])
    store.save(j)
    k = store.restore({**COUNT, "threads": 3})
    assert [t.num_rows for t in run(k, plan[12:])] == [t.num_rows for t in run(j, plan[12:])]


# --- what cannot be restored ---


@pytest.fixture
def stored() -> Store:
    j, store = mr.WindowJoin(**COUNT), Store()
    run(j, stream(COUNT))
    store.save(j)
    assert len(store.runs) > 1
    return store


def test_a_missing_run_is_named(stored: Store) -> None:
    for name in list(stored.runs):
        left = {n: d for n, d in stored.runs.items() if n != name}
        with pytest.raises(mr.StateError, match=f"{name}.*missing"):
            mr.WindowJoin.restore(stored.manifest, left, **COUNT)


def test_an_altered_run_is_named(stored: Store) -> None:
    for name, data in stored.runs.items():
        for altered in (data[:-1], data + b"\0", data[:50] + bytes([data[50] ^ 1]) + data[51:], b""):
            with pytest.raises(mr.StateError, match=f"{name}.*altered"):
                mr.WindowJoin.restore(stored.manifest, {**stored.runs, name: altered}, **COUNT)


def test_every_altered_byte_of_a_manifest_is_noticed(stored: Store) -> None:
    manifest = stored.manifest
    for at in range(0, len(manifest), max(1, len(manifest) // 97)):
        broken = manifest[:at] + bytes([manifest[at] ^ 1]) + manifest[at + 1 :]
        with pytest.raises(mr.StateError):
            mr.WindowJoin.restore(broken, stored.runs, **COUNT)
    for broken in (b"", b"{}", b"[]", b"5", manifest[:-1], manifest + b" ", b"\xff\xfe"):
        with pytest.raises(mr.StateError):
            mr.WindowJoin.restore(broken, stored.runs, **COUNT)


@pytest.mark.parametrize("manifest", [None, "text", 5, {"a": 1}])
def test_what_is_not_a_manifest_is_a_state_error(stored: Store, manifest: Any) -> None:
    with pytest.raises(mr.StateError, match="manifest"):
        mr.WindowJoin.restore(manifest, stored.runs, **COUNT)


def test_another_version_of_the_format_is_refused_by_number(stored: Store) -> None:
    head, _, body = stored.manifest.partition(b"\n")
    about = json.loads(head)
    about["millrace_state"] += 1
    other = json.dumps(about).encode() + b"\n" + body
    with pytest.raises(mr.StateError, match=f"format {about['millrace_state']}.*format {state_module.FORMAT}"):
        mr.WindowJoin.restore(other, stored.runs, **COUNT)


@pytest.mark.parametrize(
    "other",
    [
        {"on": "abs(r.x - s.x) <= 3"},
        {"window": "41 rows"},
        {"window": ("40 rows", "41 rows")},
        {"time": "ts"},
        {"time": "ts", "lateness": 1},
        {"self_join": True},
        {"output": "seqs"},
        {"max_pending": 5},
        {"schemas": {"r": pa.schema([("x", pa.int64())])}},
    ],
    ids=str,
)
def test_other_arguments_are_refused_by_name(stored: Store, other: dict[str, Any]) -> None:
    with pytest.raises(mr.StateError) as caught:
        mr.WindowJoin.restore(stored.manifest, stored.runs, **{**COUNT, **other})
    assert next(iter(other)) in str(caught.value)


OPEN = {"device": None, "index": None}
"""What may differ after a restore."""


@pytest.mark.parametrize("after", ["auto", "bisort", "rap", "wib", "pim", "im", "chain", "btree", "scan"])
@pytest.mark.parametrize("before", ["auto", "bisort", "rap", "wib", "btree", "scan"])
def test_a_state_continues_with_another_index(before: str, after: str) -> None:
    plan = stream(COUNT)
    wanted = run(mr.WindowJoin(**COUNT, index="scan"), plan)
    j = mr.WindowJoin(**COUNT, index=before)  # type: ignore[arg-type]
    found = run(j, plan[:12])
    delta = j.state()
    k = mr.WindowJoin.restore(delta.manifest, delta.added, **COUNT, index=after)
    assert k.stats["index"] == after
    assert {**meaning(k), **OPEN} == {**meaning(j), **OPEN}
    for one, other in zip(found + run(k, plan[12:]), wanted, strict=True):
        assert one.equals(other)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"device": "opencl", "index": "bisort"}, {"device": "cpu"}),
        ({"device": "cpu", "index": "wib"}, {"device": "opencl", "index": "bisort"}),
        ({"device": "opencl", "index": "bisort", "fallback": "cpu"}, {"device": "opencl", "index": "bisort"}),
        ({"threads": 1}, {"threads": 2, "fallback": "cpu", "options": {}}),
    ],
    ids=str,
)
def test_a_state_continues_on_another_device(before: dict[str, Any], after: dict[str, Any]) -> None:
    plan = stream(COUNT)
    wanted = run(mr.WindowJoin(**COUNT, device="cpu"), plan)
    j = mr.WindowJoin(**COUNT, **before)
    found = run(j, plan[:12])
    delta = j.state()
    k = mr.WindowJoin.restore(delta.manifest, delta.added, **COUNT, **after)
    assert k.stats["device"].startswith(after.get("device", "cpu"))
    assert {**meaning(k), **OPEN} == {**meaning(j), **OPEN}
    for one, other in zip(found + run(k, plan[12:]), wanted, strict=True):
        assert one.equals(other)


def test_a_state_from_before_these_arguments_might_differ_is_read(stored: Store) -> None:
    """Older manifests compare index, device and fallback too, and call a fallback `fell_back`."""
    content = unseal(state_module.KIND, state_module.FORMAT, stored.manifest)
    snapshot = content["snapshot"]
    snapshot["arguments"] |= {"index": "'auto'", "device": "'auto'", "fallback": "None"}
    snapshot["fell_back"] = snapshot.pop("fallback")
    older = seal(state_module.KIND, state_module.FORMAT, content)
    k = mr.WindowJoin.restore(older, stored.runs, **COUNT)
    assert k.stats == mr.WindowJoin.restore(stored.manifest, stored.runs, **COUNT).stats


def test_the_same_window_written_otherwise_is_the_same_argument() -> None:
    arguments: dict[str, Any] = {"on": "r.x = s.x", "window": "2 minutes", "time": "ts"}
    j = mr.WindowJoin(**arguments)
    j.push("r", pa.table({"ts": pa.array([1], pa.timestamp("s")), "x": [1]}))
    delta = j.state()
    k = mr.WindowJoin.restore(delta.manifest, delta.added, **{**arguments, "window": ("120 seconds", "120 seconds")})
    assert k.stats == j.stats


def test_state_after_close_is_a_state_error() -> None:
    j = mr.WindowJoin(**COUNT)
    j.close()
    with pytest.raises(mr.StateError, match="closed"):
        j.state()


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_state_that_was_interrupted_loses_no_run(
    monkeypatch: pytest.MonkeyPatch, number: int, error: type[BaseException]
) -> None:
    """The next delta is complete: it has what the failed call had begun to write."""
    arguments: dict[str, Any] = {"on": "r.x = s.x", "window": "100", "time": "ts"}
    j, store = mr.WindowJoin(**arguments), Store()
    for side in "rs":
        j.push(side, pa.table({"ts": [1, 2, 30], "x": [1, 2, 3]}))
    real, calls = state_module._write, 0

    def failing(*given: Any) -> str:
        nonlocal calls
        calls += 1
        if calls == number:
            raise error
        return real(*given)

    with monkeypatch.context() as patch:
        patch.setattr(state_module, "_write", failing)
        try:
            store.save(j)
        except error:
            assert calls == number
            store.save(j)
    assert store.restore(arguments).stats == j.stats


def test_a_delta_says_how_large_it_is() -> None:
    j = mr.WindowJoin(**COUNT)
    run(j, stream(COUNT))
    delta = j.state()
    text = repr(delta)
    assert f"{len(delta.manifest)} bytes" in text
    assert len(text) < 200


def test_a_manifest_is_small_beside_the_rows() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="100000 rows", output="count")
    j.push("r", pa.table({"x": np.arange(100_000)}))
    delta = j.state()
    assert len(delta.manifest) < 10_000
    assert sum(map(len, delta.added.values())) > 800_000


def test_time_scales_and_clocks_survive_a_restore() -> None:
    arguments: dict[str, Any] = {"on": "r.x = s.x", "window": "1 second", "time": "ts", "lateness": "500 ms"}

    def stamps(unit: str, *ticks: int) -> pa.Table:
        return pa.table({"ts": pa.array(ticks, pa.timestamp(unit)), "x": [1] * len(ticks)})

    j, store = mr.WindowJoin(**arguments), Store()
    j.push("r", stamps("s", 10, 11))
    store.save(j)
    k = store.restore(arguments)
    for join in (j, k):
        join.push("s", stamps("ns", 10_500_000_001, 11_000_000_000))
        join.advance("r", np.datetime64(11_400, "ms"))
    assert meaning(j) == meaning(k)
    store.save(k)
    last = store.restore(arguments)
    assert last.stats == k.stats
    results = [join.close() for join in (j, k, last)]
    assert results[0].equals(results[1])
    assert results[0].equals(results[2])
