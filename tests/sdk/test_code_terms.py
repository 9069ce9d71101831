"""Terms over text, binary, booleans and decimals: `=` and `<>` by value, with columns and literals, and errors."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.base import codes as codes_module
from millrace.join_parts import direct_join
from tests.sdk.join_cases import check_message

TEXTS = ["a", "", None, "é", "é", "a", "A", "a ", "a\x00", "longer than the twelve bytes of a view"]
BYTES = [b"\x00", b"", None, b"\xff\x00", b"\x00", b"ab"]
DECIMALS = [Decimal("1.20"), Decimal("-1.20"), None, Decimal("0.00"), Decimal("1.20"), Decimal("9999999.99")]
FLAGS = [True, None, False, False, True]
TEXT_TYPES = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
BINARY_TYPES = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int32(), pa.binary())]
DECIMAL_TYPES = [pa.decimal128(9, 2), pa.decimal128(38, 2), pa.decimal256(60, 2), pa.decimal64(9, 2)]
PAIRS = [
    *((TEXTS, a, b) for a in TEXT_TYPES for b in TEXT_TYPES),
    *((BYTES, a, b) for a in BINARY_TYPES for b in BINARY_TYPES),
    *((DECIMALS, a, b) for a in DECIMAL_TYPES for b in DECIMAL_TYPES),
    (FLAGS, pa.bool_(), pa.bool_()),
]


def expected(r: list[Any], s: list[Any], holds: Callable[[Any, Any], bool]) -> list[tuple[int, int]]:
    """The row numbers of the pairs without a null for which `holds` is true."""
    return [(i, k) for i, a in enumerate(r) for k, b in enumerate(s) if a is not None and b is not None and holds(a, b)]


def pairs_of(found: pa.Table) -> list[tuple[int, int]]:
    return list(zip(found["r_seq"].to_pylist(), found["s_seq"].to_pylist(), strict=True))


@pytest.mark.parametrize(("values", "r_type", "s_type"), PAIRS, ids=str)
def test_values_compare_whatever_their_arrow_type(values: list, r_type: pa.DataType, s_type: pa.DataType) -> None:
    r, s = pa.table({"v": pa.array(values, r_type)}), pa.table({"v": pa.array(values[::-1], s_type)})
    for on, holds in (("r.v = s.v", lambda a, b: a == b), ("r.v <> s.v", lambda a, b: a != b)):
        found = mr.join(r, s, on=on)
        assert pairs_of(found) == expected(values, values[::-1], holds)
        j = mr.WindowJoin(on=on, window="100 rows")
        j.push("r", r)
        assert sorted(pairs_of(j.push("s", s))) == pairs_of(found)
        assert j.stats["null_keys"] == 2 * (None in values)


@pytest.mark.parametrize(
    ("values", "data_type", "literal", "value"),
    [
        (["it's", "its", None, ""], pa.string(), "'it''s'", "it's"),
        (["it's", "its", None, ""], pa.string(), "''", ""),
        (["a", "b"], pa.dictionary(pa.int32(), pa.large_string()), "'b'", "b"),
        (["a", "b"], pa.string(), "'never seen'", "never seen"),
        ([b"\x0a\xff", b"", None], pa.binary(), "X'0aFF'", b"\x0a\xff"),
        ([b"ab", b"cd"], pa.binary(2), "X'6162'", b"ab"),
        ([True, False, None], pa.bool_(), "FALSE", False),
        (DECIMALS, pa.decimal128(9, 2), "1.2", Decimal("1.20")),
        (DECIMALS, pa.decimal128(9, 2), "-1.200", Decimal("-1.20")),
        (DECIMALS, pa.decimal128(9, 2), "0", Decimal(0)),
        (DECIMALS, pa.decimal256(60, 2), "9999999.99", Decimal("9999999.99")),
        (DECIMALS, pa.decimal128(9, 2), "1.205", None),
        ([Decimal("15E2"), Decimal("16E2")], pa.decimal128(3, -2), "1.5e3", Decimal(1500)),
    ],
)
@pytest.mark.parametrize("op", ["=", "<>"])
def test_literals_filter_rows(op: str, values: list, data_type: pa.DataType, literal: str, value: Any) -> None:
    table = pa.table({"k": [1] * len(values), "v": pa.array(values, data_type)})
    kept = [i for i, v in enumerate(values) if v is not None and (v == value) == (op == "=")]
    for term in (f"r.v {op} {literal}", f"{literal} {op} r.v"):
        found = mr.join(table, table.slice(0, 1), on=f"r.k = s.k AND {term}", output="seqs")
        assert found["r_seq"].to_pylist() == kept
        counts = mr.join(table.slice(0, 1), table, on=f"r.k = s.k AND {term.replace('r.v', 's.v')}", output="count")
        assert counts["count"].to_pylist() == [len(kept)]


def test_an_equality_of_text_beside_a_band() -> None:
    rng = np.random.default_rng(5)
    r, s = (
        pa.table({"x": rng.integers(0, 50, 400), "site": [("A", "B", None, "Z")[i] for i in rng.integers(0, 4, 400)]})
        for _ in "rs"
    )
    sides = [list(zip(t["x"].to_pylist(), t["site"].to_pylist(), strict=True)) for t in (r, s)]
    for index in ("scan", "btree", "bisort", "auto"):
        found = mr.join(r, s, on="r.site = s.site AND abs(r.x - s.x) <= 2 AND s.site <> 'Z'", index=index)
        assert pairs_of(found) == expected(
            sides[0], sides[1], lambda a, b: a[1] == b[1] and None is not a[1] != "Z" and abs(a[0] - b[0]) <= 2
        )


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_every_how(how: Any) -> None:
    r, s = pa.table({"v": ["a", None, "b", "c"]}), pa.table({"v": ["b", "b", None, "a"]})
    found = mr.join(r, s, on="r.v = s.v", how=how)
    wanted: dict[str, list[Any]] = {
        "inner": [(0, 3), (2, 0), (2, 1)],
        "left": [(0, 3), (1, None), (2, 0), (2, 1), (3, None)],
        "semi": [0, 2],
        "anti": [1, 3],
    }
    assert (found["r_seq"].to_pylist() if how in ("semi", "anti") else pairs_of(found)) == wanted[how]


def test_the_direct_strategy_finds_equal_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_join, "MIN_ROWS", 4)
    taken: list[bool] = []
    run = direct_join._DirectJoin.blocks

    def spy(self: Any) -> Any:
        found = run(self)
        taken.append(found is not None)
        return found

    monkeypatch.setattr(direct_join._DirectJoin, "blocks", spy)
    texts = [f"text {i % 1000}" for i in range(3000)]
    r, s = pa.table({"v": texts, "i": range(3000)}), pa.table({"v": texts[::-1], "i": range(3000)})
    found = mr.join(r, s, on="r.v = s.v")
    assert taken == [True]
    assert found["r_v"].to_pylist() == found["s_v"].to_pylist()
    assert pairs_of(found) == pairs_of(mr.join(r, s, on="r.v = s.v", index="scan"))
    assert found.num_rows == 9000
    assert found["s_i"].to_pylist() == found["s_seq"].to_pylist()


def test_a_self_join_compares_two_columns_of_one_stream() -> None:
    a, b = ["x", "y", "z", "x"], ["y", "y", "x", None]
    for window, time in (("100 rows", None), ("100", "t")):
        j = mr.WindowJoin(on="r.a = s.b", window=window, time=time, self_join=True)
        found = [*pairs_of(j.push("r", pa.table({"t": [0, 1, 2, 3], "a": a, "b": b}))), *pairs_of(j.close())]
        assert sorted(found) == [(0, 2), (1, 0), (3, 2)]


# --- codes that nobody holds are dropped ---


@pytest.fixture
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes_module, "MIN_SWEEP", 50)


@pytest.mark.usefixtures("small_tables")
@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("self_join", [False, True])
def test_the_codes_of_an_endless_stream_of_new_texts_stay_few(timed: bool, self_join: bool) -> None:
    """Every text is new, except that old ones come back later; those still match."""
    rows, steps = 20, 60
    arguments: dict[str, Any] = {"on": "r.v = s.w AND r.v <> 'none'", "window": "30 rows", "self_join": self_join}
    if timed:
        arguments |= {"window": "30", "time": "t"}
    j = mr.WindowJoin(**arguments)
    sizes, total = [], 0
    for step in range(steps):
        numbers = np.arange(step * rows, (step + 1) * rows)
        # In every fourth step the texts are those of nine steps ago, which no window holds any more.
        texts = [f"text {n - 9 * rows * (step % 4 == 3)}" for n in numbers]
        batch = pa.table({"t": numbers, "v": texts, "w": texts})
        if self_join:
            total += j.push("r", batch.take(np.repeat(np.arange(rows), 2))).num_rows
        else:
            total += j.push("r", batch).num_rows + j.push("s", batch).num_rows
        sizes.append(len(j._reader.codes))
    total += j.close().num_rows
    assert max(sizes) <= 50 + 6 * rows
    assert total == steps * rows * (2 if self_join else 1)


@pytest.mark.usefixtures("small_tables")
def test_waiting_rows_keep_their_codes() -> None:
    j = mr.WindowJoin(on="r.v = s.v", window="5", time="t")
    for start in range(0, 400, 40):
        j.push("r", pa.table({"t": range(start, start + 40), "v": [f"text {n}" for n in range(start, start + 40)]}))
    assert len(j._reader.codes) == 400
    found = j.push("s", pa.table({"t": range(400), "v": [f"text {n}" for n in range(400)]}))
    assert found.num_rows + j.close().num_rows == 400


@pytest.mark.usefixtures("small_tables")
def test_a_table_that_is_probed_for_long_keeps_few_codes() -> None:
    from millrace.join_parts.table_probe import TableProbe

    held = pa.table({"v": [f"text {n}" for n in range(30)]})
    probe = TableProbe.of("r.v = s.v", held, held.schema)
    for start in range(0, 3000, 30):
        found = probe.find_partners(pa.table({"v": [f"text {n % 1500}" for n in range(start, start + 30)]}))
        assert found.counts.tolist() == [int(start % 1500 == 0)] * 30
        assert len(probe._bound.codes) <= 200
    probe.close()


@pytest.mark.usefixtures("small_tables")
@pytest.mark.parametrize("timed", [False, True])
def test_a_restored_join_goes_on_alike(timed: bool) -> None:
    arguments: dict[str, Any] = {"on": "r.v = s.v AND s.v <> 'text 7'", "window": "60 rows"}
    if timed:
        arguments |= {"window": "60", "time": "t"}
    j = mr.WindowJoin(**arguments)
    runs: dict[str, bytes] = {}

    def batch(step: int) -> pa.Table:
        numbers = range(step * 20, step * 20 + 20)
        return pa.table({"t": numbers, "v": [f"text {n % 45}" for n in numbers]})

    for step in range(12):
        delta = j.state()
        runs = {name: data for name, data in {**runs, **delta.added}.items() if name not in delta.removed}
        again = mr.WindowJoin.restore(delta.manifest, runs, **arguments)
        for side in ("r", "s"):
            assert again.push(side, batch(step)).equals(j.push(side, batch(step)))
        assert again.close().num_rows >= 0


def test_a_failed_call_changes_nothing() -> None:
    j, spared = (mr.WindowJoin(on="r.v = s.v", window="9 rows") for _ in "ab")
    for one in (j, spared):
        one.push("r", pa.table({"v": ["a", "b"]}))
    for bad, kind in (
        (pa.table({"v": [1]}), mr.PredicateError),
        (pa.table({"v": [b"a"]}), mr.PredicateError),
        (pa.table({"v": [[1]]}), mr.KeyTypeError),
    ):
        with pytest.raises(kind, match=r"s\.v"):
            j.push("s", bad)
    for one in (j, spared):
        assert pairs_of(one.push("s", pa.table({"v": ["b", "c"]}))) == [(1, 0)]
    with pytest.raises(mr.SchemaError):
        j.push("s", pa.table({"v": [1]}))
    assert j.push("r", pa.table({"v": ["c"]})).equals(spared.push("r", pa.table({"v": ["c"]})))


# --- errors ---

ONE = pa.table(
    {
        "t": ["a"],
        "b": [b"a"],
        "f": [True],
        "d": pa.array([Decimal(1)], pa.decimal128(9, 2)),
        "e": pa.array([Decimal(1)], pa.decimal128(9, 3)),
        "n": [1],
        "x": [1.0],
        "ts": pa.array([1], pa.timestamp("us")),
        "z": pa.array([1], pa.timestamp("us", "UTC")),
    }
)


@pytest.mark.parametrize(
    ("term", "parts"),
    [
        ("r.t = s.n", ("r.t of type string", "s.n of type int64", "cast")),
        ("s.n <> r.t", ("s.n of type int64", "r.t of type string", "cast")),
        ("r.t = s.b", ("string", "binary", "cast")),
        ("r.t = s.f", ("string", "bool", "cast")),
        ("r.d = s.n", ("decimal128(9, 2)", "int64", "cast")),
        ("r.d = s.e", ("decimal128(9, 2)", "decimal128(9, 3)", "same scale", "cast")),
        ("r.t = s.ts", ("string", "timestamp[us]", "cast")),
        ("r.t = s.n + 1", ("r.t of type string", "an exact number", "cast")),
        ("r.t = 5", ("r.t of type string", "an exact number", "write '…'")),
        ("r.t = TRUE", ("TRUE or FALSE", "write '…'")),
        ("r.b = 'a'", ("a text literal", "write X'…'")),
        ("r.f = 1", ("bool", "write TRUE or FALSE")),
        ("r.f = 'true'", ("bool", "write TRUE or FALSE")),
        ("r.d = '1.0'", ("decimal128(9, 2)", "write one number")),
        ("r.d = 1 + 1", ("decimal128(9, 2)", "write one number")),
        ("r.n = 'a'", ("r.n of type int64", "write a number")),
        ("r.x <> X'00'", ("r.x of type float64", "a binary literal", "write a number")),
        ("TRUE = r.n", ("TRUE or FALSE", "write a number")),
        ("r.n + 1 = 'a'", ("an exact number", "write a number")),
        ("r.ts = '2024-01-01'", ("timestamp[us]", "TIMESTAMP '…'")),
        ("r.z = '2024-01-01'", ("timestamp[us, tz=UTC]", "TIMESTAMP '…' with an offset")),
        ("r.ts - s.ts = '5 minutes'", ("an interval", "INTERVAL '…'")),
    ],
)
def test_sides_that_do_not_fit_are_named_at_their_term(term: str, parts: tuple[str, ...]) -> None:
    on = f"r.n = s.n AND {term}"
    with pytest.raises(mr.PredicateError) as caught:
        mr.join(ONE, ONE, on=on)
    check_message(caught.value, parts)
    assert on[caught.value.start : caught.value.end] == term
    with pytest.raises(mr.PredicateError) as caught:
        mr.WindowJoin(on=on, window="5 rows", schemas={"r": ONE.schema, "s": ONE.schema})
    assert on[caught.value.start : caught.value.end] == term


@pytest.mark.parametrize("column", ["t", "b", "f", "d"])
def test_an_index_refuses_keys_without_an_order(column: str) -> None:
    with pytest.raises(mr.KeyTypeError) as caught:
        mr.OrderedIndex(ONE[column])
    check_message(caught.value, (str(ONE[column].type), "int64", "cast"))
