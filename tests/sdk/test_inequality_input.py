"""Bad input of joins on two inequalities: ties everywhere, empty sides, nulls and NaN, results beyond memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.join import pair_memory
from millrace.host.runtime.allocator import bytes_in_use
from millrace.ingest.choices import HOWS, How, Output
from tests.sdk.join_cases import check_message

STRICT = "r.a < s.a AND r.b > s.b"
LOOSE = "r.a <= s.a AND r.b >= s.b"
BANDS = "abs(r.a - s.a) <= 1 AND abs(r.b - s.b) < 1"
CONDITIONS = (STRICT, LOOSE, BANDS)


def table(a: Any, b: Any) -> pa.Table:
    return pa.table({"a": pa.array(a, pa.float64()), "b": pa.array(b, pa.float64())})


def same_as_scan(r: pa.Table, s: pa.Table, on: str) -> int:
    """`spo` gives what the nested loop gives, in tables and in streams; the number of pairs."""
    calls: list[tuple[How, Output]] = [(how, "seqs") for how in HOWS]
    for how, output in [*calls, ("inner", "count")]:
        found = [mr.join(r, s, on, how=how, output=output, index=index) for index in ("spo", "scan")]
        assert found[0].equals(found[1]), (how, output)
    streamed = []
    for index in ("spo", "scan"):
        with mr.WindowJoin(on, window="1000 rows", index=index, output="seqs") as join:
            streamed.append(pa.concat_tables([join.push("r", r), join.push("s", s), join.push("r", r), join.close()]))
    assert streamed[0].equals(streamed[1])
    return int(mr.join(r, s, on, index="spo", output="seqs").num_rows)


@pytest.mark.parametrize("value", [0.0, -0.0, -1e308, float("inf")])
def test_equal_keys_give_every_pair_or_none(value: float) -> None:
    r, s = table([value] * 130, [value] * 130), table([value] * 70, [value] * 70)
    assert same_as_scan(r, s, STRICT) == 0
    assert same_as_scan(r, s, LOOSE) == 130 * 70


def test_one_key_equal_and_the_other_not() -> None:
    r, s = table([5.0] * 100, np.arange(100.0)), table([5.0] * 100, np.arange(100.0))
    assert same_as_scan(r, s, "r.a <= s.a AND r.b > s.b") == 4950
    assert same_as_scan(r, s, "r.a < s.a AND r.b > s.b") == 0


@pytest.mark.parametrize("on", CONDITIONS)
def test_an_empty_side_matches_nothing(on: str) -> None:
    rows, none = table([1.0, 2.0], [2.0, 1.0]), table([], [])
    for r, s in ((rows, none), (none, rows), (none, none)):
        assert same_as_scan(r, s, on) == 0


@pytest.mark.parametrize("on", CONDITIONS)
@pytest.mark.parametrize("column", ["a", "b"])
@pytest.mark.parametrize("missing", [None, float("nan")])
def test_nulls_and_nan_in_either_key_match_nothing(on: str, column: str, missing: float | None) -> None:
    rng = np.random.default_rng(4)

    def side(rows: int) -> pa.Table:
        values = {name: rng.integers(0, 9, rows).astype(float).tolist() for name in "ab"}
        values[column] = [missing if i % 3 == 0 else value for i, value in enumerate(values[column])]
        return table(values["a"], values["b"])

    r, s = side(60), side(80)
    assert same_as_scan(r, s, on) > 0
    pairs = mr.join(r, s, on, index="spo")
    assert not {seq for name in ("r_seq", "s_seq") for seq in pairs[name].to_pylist() if seq % 3 == 0}


def test_a_side_of_nulls_alone() -> None:
    nulls, rows = table([None] * 50, [None] * 50), table(np.arange(50.0), np.arange(50.0))
    assert same_as_scan(nulls, rows, LOOSE) == same_as_scan(rows, nulls, LOOSE) == 0
    assert mr.join(nulls, rows, LOOSE, index="spo", how="anti").num_rows == 50


def test_a_result_beyond_memory_is_refused_before_it_is_allocated() -> None:
    rows = 1_000_000
    r = s = pa.table({"a": np.zeros(rows, np.int64), "b": np.zeros(rows, np.int64)})
    before = bytes_in_use()
    with pytest.raises(mr.ArgumentError) as caught:
        mr.join(r, s, LOOSE, index="spo", output="seqs")
    check_message(caught.value, ("1,000,000,000,000 pairs", "16 bytes", "TiB", "batch_rows"))
    assert bytes_in_use() - before < 200 * rows


def test_a_result_beyond_memory_can_be_streamed_or_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_memory, "free_bytes", lambda: 80 << 20)
    rows = 2400
    r = s = pa.table({"a": np.zeros(rows, np.int64), "b": np.zeros(rows, np.int64)})
    with pytest.raises(mr.ArgumentError, match=r"5,760,000 pairs .*batch_rows"):
        mr.join(r, s, LOOSE, index="spo", output="seqs")
    assert set(mr.join(r, s, LOOSE, index="spo", output="count")["count"].to_pylist()) == {rows}
    seen = 0
    for part in mr.join(r, s, LOOSE, index="spo", output="seqs", batch_rows=100_000):
        assert part.num_rows <= 100_000
        assert part["r_seq"][0].as_py() == seen // rows
        seen += part.num_rows
    assert seen == rows * rows


def test_a_push_with_pairs_beyond_memory_is_refused_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 2400
    equal = pa.table({"a": np.zeros(rows, np.int64), "b": np.zeros(rows, np.int64)})
    with mr.WindowJoin(LOOSE, window=f"{rows} rows", index="spo", output="seqs") as join:
        assert join.push("r", equal).num_rows == 0
        with monkeypatch.context() as small:
            small.setattr(pair_memory, "free_bytes", lambda: 80 << 20)
            with pytest.raises(mr.ArgumentError, match=r"5,760,000 pairs .*push fewer rows at a time"):
                join.push("s", equal)
        found = join.push("s", equal)
    assert found.num_rows == rows * rows
    assert found["s_seq"][0].as_py() == 0
