"""What a join may hold and must give back: candidates, waiting rows, devices, counters, finished changes."""

from __future__ import annotations

import copy
import os
import pickle
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace import registry
from millrace.host.data import window
from millrace.host.device.cpu import CpuDevice
from millrace.host.join import matcher
from millrace.host.join.matcher import Matcher, PairBlock
from millrace.host.kernels import gathering
from tests.host import faults

INDEXES = ["scan", "btree"]


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(registry.BACKENDS, "faulty", faults.MODULE)
    yield
    faults.disarm()


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, PairBlock]]:
    """For each block that a matcher gave: how many candidates it had, and what was kept of them."""
    seen: list[tuple[int, PairBlock]] = []
    plain = Matcher._checked

    def spy(self: Matcher, windows: Any, new: Any, part: Any, raw: Any, want_pairs: bool) -> PairBlock:
        result = plain(self, windows, new, part, raw, want_pairs)
        seen.append((sum(int(m.counts.sum()) for m in raw.values()), result))
        return result

    monkeypatch.setattr(Matcher, "_checked", spy)
    return seen


@pytest.mark.parametrize("index", INDEXES)
def test_a_one_sided_term_in_an_or_filters_its_own_band(index: Any) -> None:
    on = "abs(r.x - s.x) <= 1 AND r.x > 3 OR r.x = s.x + 10 AND s.x > 100"
    r, s = pa.table({"x": [3, 4, 13, 115]}), pa.table({"x": [3, 4, 105]})
    assert mr.join(r, s, on=on, index=index, output="seqs").to_pydict() == {"r_seq": [1, 1, 3], "s_seq": [0, 1, 2]}


@pytest.mark.parametrize("index", INDEXES)
def test_candidates_of_a_useless_key_are_bounded(
    index: Any, found: list[tuple[int, PairBlock]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matcher, "STEP_CANDIDATES", 5000)
    rows = pa.table({"k": [1] * 700, "a": np.arange(700) * 1.0})
    pairs = mr.join(rows, rows, on="r.k = s.k AND r.a * s.a = 0", index=index, output="seqs")
    assert pairs.num_rows == 2 * 700 - 1
    assert max(candidates for candidates, _ in found) <= 5000
    assert len(found) >= 700 * 700 // 5000


@pytest.mark.parametrize("how", ["semi", "anti", "inner"])
def test_pairs_that_nobody_wants_are_not_kept(how: Any, found: list[tuple[int, PairBlock]]) -> None:
    rows = pa.table({"a": np.arange(90), "b": np.arange(90)[::-1]})
    result = mr.join(rows, rows, on="r.a < s.a AND r.b > s.b", how=how, output="count" if how == "inner" else "seqs")
    assert result.num_rows == {"semi": 89, "anti": 1, "inner": 90}[how]
    assert sum(candidates for candidates, _ in found) > 0
    assert all(len(block.partner[side]) == 0 for _, block in found for side in ("r", "s"))


def test_waiting_rows_are_kept_in_few_pieces() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="5", time="x")
    for i in range(300):
        j.push("r", pa.table({"x": [i], "text": [f"row {i}"]}))
    runs = j._progress.waiting.runs["r"]
    assert sum(run.rows.payload.column(1).num_chunks for run in runs) < 20
    assert j.push("s", pa.table({"x": [400]})).num_rows == 0
    assert j.stats["pending"] == 1


def test_rows_too_long_for_one_piece_are_gathered_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    class Short:
        """A table that can give three rows at a time."""

        def get_total_buffer_size(self) -> int:
            return 80

        def take(self, rows: pa.Array) -> pa.Table:
            if len(rows) > 3:
                raise pa.ArrowInvalid("Take operation overflowed binary array capacity")
            return pa.table({"n": rows})

    assert gathering.gather(Short(), pa.array(range(10))).column(0).to_pylist() == list(range(10))


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_evicting_old_rows_cannot_damage_a_finished_push(error: type[BaseException], monkeypatch: Any) -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="2 rows")
    j.push("r", pa.table({"x": [1, 2, 3]}))
    pairs = j.push("s", pa.table({"x": [3, 2]}))
    assert pairs.select([0, 1]).to_pydict() == {"r_seq": [2, 1], "s_seq": [0, 1]}
    with monkeypatch.context() as patch:
        patch.setattr(window.Window, "evict", lambda self, keep: (_ for _ in ()).throw(error))
        with pytest.raises(error):
            j.push("r", pa.table({"x": [2]}))
    assert j.stats["rows"] == {"r": 3, "s": 2}
    assert j.push("r", pa.table({"x": [2]})).select([0, 1]).to_pydict() == {"r_seq": [3], "s_seq": [1]}


def test_devices_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []
    monkeypatch.setattr(CpuDevice, "close", lambda self: closed.append(id(self)))
    j = mr.WindowJoin(on="r.x = s.x", window="2 rows", index="scan")
    j.push("r", pa.table({"x": [1]}))
    j.push("s", pa.table({"x": [1]}))
    before = j.stats
    j.close()
    assert len(set(closed)) == 1
    assert j.stats == before
    with pytest.raises(mr.SchemaError):
        mr.WindowJoin(on="r.x = s.x", window="2 rows", schemas={"r": pa.schema([("y", pa.int64())])})
    assert len(set(closed)) == 2
    with pytest.raises(mr.StateError):
        mr.WindowJoin.restore(b"", {}, on="r.x = s.x", window="2 rows")
    assert len(closed) == 3
    mr.join(pa.table({"x": [1]}), pa.table({"x": [1]}), on="r.x = s.x", index="scan")
    assert len(closed) == 4


@pytest.mark.usefixtures("faulty")
def test_building_an_index_again_and_again_counts_for_nothing() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="9 rows", index="scan", device="faulty")
    j.push("r", pa.table({"x": [1, 2]}))
    j.push("s", pa.table({"x": [1, 2]}))
    faults.arm("launch", 1)
    with pytest.raises(mr.DeviceFault):
        j.push("s", pa.table({"x": [2]}))
    before = j.stats
    for _ in range(3):
        faults.arm("write", 1)
        with pytest.raises(mr.DeviceFault):
            j.push("s", pa.table({"x": [2]}))
    assert j.stats == before


@pytest.mark.usefixtures("faulty")
def test_a_join_of_tables_that_fell_back_says_so() -> None:
    rows = pa.table({"x": [1, 2]})
    faults.arm("launch", 1)
    with pytest.warns(RuntimeWarning, match="faulty -> cpu"):
        pairs = mr.join(rows, rows, on="r.x = s.x", index="scan", device="faulty", fallback="cpu")
    assert pairs.num_rows == 2


def test_a_join_says_what_to_do_instead_of_being_copied() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="2 rows")
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(mr.StateError, match="restore"):
            attempt(j)


@pytest.mark.parametrize(
    ("manifest", "runs"),
    [(b"", {}), (b"{" * 100_000, {}), (b"[" * 100_000, {}), (b'{"millrace_state": 1}', {}), ("text", {}), (None, {})],
    ids=["empty", "braces", "brackets", "half a head", "text", "nothing"],
)
def test_garbage_is_no_state(manifest: Any, runs: Any) -> None:
    with pytest.raises(mr.StateError):
        mr.WindowJoin.restore(manifest, runs, on="r.x = s.x", window="2 rows")


@pytest.mark.parametrize("runs", [None, [], {"all": None}, {"all": "text"}])
def test_runs_must_be_a_mapping_to_bytes(runs: Any) -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="2 rows")
    j.push("r", pa.table({"x": [1]}))
    delta = j.state()
    if isinstance(runs, dict):
        runs = dict.fromkeys(delta.added, runs["all"])
    with pytest.raises(mr.StateError, match=r"bytes|mapping"):
        mr.WindowJoin.restore(delta.manifest, runs, on="r.x = s.x", window="2 rows")


def test_auto_scans_where_an_index_cannot_help() -> None:
    conditions = ("r.x = s.x", "r.x < s.x", "r.x <> s.x")
    chosen = {on: mr.WindowJoin(on=on, window="9 rows").stats["index"] for on in conditions}
    assert chosen == {"r.x = s.x": "auto", "r.x < s.x": "scan", "r.x <> s.x": "scan"}
    counted = {on: mr.WindowJoin(on=on, window="9 rows", output="count").stats["index"] for on in conditions}
    assert set(counted.values()) == {"auto"}
    assert mr.WindowJoin(on="r.x = s.x", window="9 rows", device="opencl").stats["index"] == "bisort"


def test_a_child_forked_in_the_middle_of_a_push_can_go_on() -> None:
    j = mr.WindowJoin(on="r.x = s.x", window="9 rows")
    j.push("r", pa.table({"x": [1]}))
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with j._calls.exclusive():
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if j.push("s", pa.table({"x": [1]})).num_rows == 1 else 1)
    _, status = os.waitpid(child, 0)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0


def test_an_interrupt_at_any_line_of_a_commit_changes_nothing_or_everything() -> None:
    batches = [("r", [1, 2]), ("s", [2, 3]), ("r", [3, 2])]
    plain = mr.WindowJoin(on="r.x = s.x", window="10 rows", output="seqs")
    wanted = [plain.push(side, pa.table({"x": x})).to_pydict() for side, x in batches]
    code = mr.WindowJoin._commit.__code__
    lines = sorted({line for _, _, line in code.co_lines() if line})
    for stop in lines[1:]:
        j = mr.WindowJoin(on="r.x = s.x", window="10 rows", output="seqs")
        for side, x in batches[:2]:
            j.push(side, pa.table({"x": x}))

        def interrupt(frame: Any, event: str, argument: Any, stop: int = stop) -> Any:
            if frame.f_code is code and event == "line" and frame.f_lineno == stop:
                sys.settrace(None)
                raise KeyboardInterrupt
            return interrupt

        sys.settrace(interrupt)
        try:
            j.push("r", pa.table({"x": [3, 2]}))
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        taken = j.stats["rows"]["r"] == 4
        assert j.stats["held"] == (6 if taken else 4)
        if not taken:
            assert j.push("r", pa.table({"x": [3, 2]})).to_pydict() == wanted[2]


@pytest.mark.parametrize("index", INDEXES)
def test_single_rows_of_floats_warn_of_nothing(index: Any) -> None:
    j = mr.WindowJoin(on="abs(r.x - s.x) <= 1", window="10 rows", index=index, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [j.push(side, pa.table({"x": [1.5]})).num_rows for side in "rsrs"]
    assert found == [0, 1, 1, 2]
