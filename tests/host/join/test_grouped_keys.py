"""Equalities in front of order terms split the work by group: an index returns matches only, never the whole group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.join import matcher, registry
from millrace.host.join.matcher import Matcher
from millrace.host.planner import selectivity
from millrace.ingest.choices import HOWS
from millrace.join_parts import direct_join
from millrace.join_parts.table_probe import TableProbe
from tests import oracle
from tests.conformance.pairs import EXPECTED
from tests.gpu.emulated import backend
from tests.host.join.two_keys import TwoKeyIndex, serves_two_keys

INT64, EPOCH = np.iinfo(np.int64), datetime(2024, 1, 1, tzinfo=UTC)
GROUPS: dict[str, Callable[[int], Any]] = {
    "text": lambda k: f"site {k}",
    "int32": lambda k: k - 1,
    "int64": lambda k: (INT64.min, -1, 0, INT64.max)[k % 4],
    "float64": lambda k: (0.0, -0.0, 1e300, float("-inf"))[k % 4],
}
ORDERS: dict[str, Callable[[int], Any]] = {
    "int32": lambda k: k - 10,
    "int64": lambda k: (INT64.min, INT64.min + 1, -1, 0, 1, 2, 3, INT64.max - 1, INT64.max)[k % 9],
    "float64": lambda k: (-0.0, 0.0, 0.25, float("nan"), -1e308, float("inf"), 5e-324, 1.5)[k % 8],
    "timestamp": lambda k: EPOCH + timedelta(seconds=k * k * k, microseconds=k),
}
TYPES = {"text": pa.string(), "timestamp": pa.timestamp("us", "UTC")}
TERMS = ["r.x < s.x", "r.x >= s.x AND r.y <> s.y", "s.x <= r.x AND r.x - s.x <= 3", "r.x > s.x AND r.y <= s.y"]


def column(kind: str, value: Callable[[int], Any], rng: np.random.Generator, rows: int, span: int) -> pa.Array:
    data_type = TYPES.get(kind) or getattr(pa, kind)()
    return pa.array([None if rng.random() < 0.05 else value(int(rng.integers(span))) for _ in range(rows)], data_type)


def table(group: str, order: str, seed: int, rows: int = 60) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "g": column(group, GROUPS[group], rng, rows, 4),
            "x": column(order, ORDERS[order], rng, rows, 20),
            "y": pa.array(rng.integers(0, 3, rows)),
            "b": pa.array(rng.random(rows) < 0.5),
        }
    )


@pytest.fixture
def candidates(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """How many candidates an index returned, and how many of them match, step by step."""
    seen: list[tuple[int, int]] = []
    checked = Matcher._checked

    def watch(self: Matcher, windows: Any, new: Any, part: Any, raw: Any, want_pairs: bool) -> Any:
        block = checked(self, windows, new, part, raw, want_pairs)
        seen.append((sum(int(one.counts.sum()) for one in raw.values()), block.pairs(counting=True)))
        return block

    monkeypatch.setattr(Matcher, "_checked", watch)
    monkeypatch.setattr(selectivity, "FEW_PARTNERS", -1)
    return seen


@pytest.fixture
def layouts(monkeypatch: pytest.MonkeyPatch) -> list[Matcher]:
    """The matchers that made layouts, one entry each time."""
    made: list[Matcher] = []
    lay_out = Matcher._lay_out

    def watch(self: Matcher, windows: Any) -> None:
        made.append(self)
        lay_out(self, windows)

    monkeypatch.setattr(Matcher, "_lay_out", watch)
    return made


def only_matches(seen: list[tuple[int, int]]) -> bool:
    return bool(seen) and all(found == matching for found, matching in seen)


def rows_of(given: pa.Table) -> list[dict[str, Any]]:
    """The rows as the oracle reads them."""
    rows = given.to_pylist()
    return [{n: oracle.instant(str(v)) if isinstance(v, datetime) else v for n, v in row.items()} for row in rows]


def oracle_pairs(r: pa.Table, s: pa.Table, on: str, how: str = "inner") -> list[tuple[int, int | None]]:
    return oracle.join(rows_of(r), rows_of(s), on, how)


def seqs(found: pa.Table) -> list[tuple[int, int]]:
    return list(zip(found["r_seq"].to_pylist(), found["s_seq"].to_pylist(), strict=True))


def term(number: int, order: str) -> str:
    text = TERMS[number]
    return text.replace("<= 3", "<= INTERVAL '30' SECOND") if order == "timestamp" else text


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("group", GROUPS)
def test_tables_are_searched_for_matches_only(group: str, order: str, candidates: list[tuple[int, int]]) -> None:
    r, s = table(group, order, 1), table(group, order, 2, 50)
    for number in range(len(TERMS)):
        for equal in ("r.g = s.g", "r.b = s.b AND r.g = s.g"):
            on = f"{equal} AND {term(number, order)}"
            wanted = oracle_pairs(r, s, on)
            candidates.clear()
            assert seqs(mr.join(r, s, on=on, output="seqs", index="bisort")) == wanted
            assert only_matches(candidates) == (number in (0, 2)), "the terms on y are checked"
            counts = mr.join(r, s, on=on, output="count")["count"].to_pylist()
            assert counts == [sum(i == row for i, _ in wanted) for row in range(r.num_rows)]
            for how in HOWS:
                found = mr.join(r, s, on=on, how=how, output="seqs", index="btree")
                partners = found["s_seq"].to_pylist() if "s_seq" in found.column_names else [None] * found.num_rows
                pairs = list(zip(found["r_seq"].to_pylist(), partners, strict=True))
                assert pairs == oracle_pairs(r, s, on, how)


@pytest.fixture(scope="module")
def emulated_cuda() -> Iterator[None]:
    with backend.registered():
        yield


@pytest.mark.usefixtures("emulated_cuda")
@pytest.mark.parametrize(("index", "device"), sorted(pair for pair in EXPECTED if pair[0] != "spo"), ids=str)
def test_every_index_on_every_device_returns_matches_only(
    index: Any, device: str, candidates: list[tuple[int, int]]
) -> None:
    r, s = table("text", "timestamp", 3), table("text", "timestamp", 4)
    for number in (0, 2):
        on = f"r.g = s.g AND {term(number, 'timestamp')}"
        wanted = oracle_pairs(r, s, on)
        assert seqs(mr.join(r, s, on=on, output="seqs", index=index, device=device)) == wanted
        with mr.WindowJoin(on=on, window="100 rows", index=index, device=device, output="seqs") as join:
            tables = [join.push("rs"[i % 2], (r, s)[i % 2].slice(i // 2 * 20, 20)) for i in range(6)]
            assert "x grouped by s.g" in join.stats["plan"]
        assert sorted(seqs(pa.concat_tables(tables))) == wanted
    assert only_matches(candidates)


@pytest.mark.usefixtures("emulated_cuda")
@pytest.mark.parametrize(("index", "device"), sorted(pair for pair in EXPECTED if pair[0] == "spo"), ids=str)
def test_two_order_terms_beside_an_equality_return_matches_only(
    index: Any, device: str, candidates: list[tuple[int, int]]
) -> None:
    r, s = table("text", "timestamp", 3), table("text", "timestamp", 4)
    on = f"r.g = s.g AND {term(0, 'timestamp')} AND r.y < s.y"
    wanted = oracle_pairs(r, s, on)
    assert wanted
    assert seqs(mr.join(r, s, on=on, output="seqs", index=index, device=device)) == wanted
    assert only_matches(candidates)


def run(batches: list[tuple[str, pa.Table]], restart: bool = False, **arguments: Any) -> pa.Table:
    """The output of a stream; with `restart`, of one that is restored from its state after every other batch."""
    join = mr.WindowJoin(output="seqs", **arguments)
    runs: dict[str, bytes] = {}
    found = []
    for number, (side, batch) in enumerate(batches):
        found.append(join.push(side, batch))
        if restart and number % 2:
            delta = join.state()
            runs = {name: data for name, data in (runs | delta.added).items() if name not in delta.removed}
            join = mr.WindowJoin.restore(delta.manifest, runs, output="seqs", **arguments)
    return pa.concat_tables([*found, join.close()])


def oracle_run(batches: list[tuple[str, pa.Table]], window: int, on: str) -> list[tuple[int, int]]:
    """The pairs of a count window, in order: every tuple meets the last ones of the other side."""
    rows: dict[str, list[Any]] = {"r": [], "s": []}
    found: list[tuple[int, int]] = []
    for side, batch in batches:
        for row in rows_of(batch):
            partners = rows["s" if side == "r" else "r"]
            first = max(len(partners) - window, 0)
            r, s = ([row], partners[first:]) if side == "r" else (partners[first:], [row])
            matching = sorted(oracle.join(r, s, on))
            own = len(rows[side])
            found += [(own, first + k) if side == "r" else (first + i, own) for i, k in matching if k is not None]
            rows[side].append(row)
    return found


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("group", GROUPS)
def test_streams_with_extreme_keys(group: str, order: str, candidates: list[tuple[int, int]]) -> None:
    batches = [("rs"[i % 2], table(group, order, i, 12)) for i in range(10)]
    for number in range(len(TERMS)):
        on = f"r.g = s.g AND {term(number, order)}"
        arguments: dict[str, Any] = {"on": on, "window": "30 rows", "index": "auto"}
        found = run(batches, **arguments)
        assert seqs(found) == oracle_run(batches, 30, on)
        assert run(batches, restart=True, **arguments).equals(found)
        assert run(batches, **{**arguments, "index": "btree"}).equals(found)
    if order in ("int32", "timestamp") and group != "float64":
        candidates.clear()
        run(batches, on=f"r.g = s.g AND {term(0, order)}", window="30 rows")
        assert only_matches(candidates)


@pytest.mark.parametrize("output", ["seqs", "count"])
def test_a_stream_outgrows_its_layouts(
    output: Any, candidates: list[tuple[int, int]], layouts: list[Matcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that drift far, groups that become too many, and back: some layouts are exact, some are not."""
    monkeypatch.setattr(matcher, "STEP_ROWS", 7)
    rng = np.random.default_rng(5)
    joins = [
        mr.WindowJoin(on="r.g = s.g AND abs(r.x - s.x) <= 3", window="60 rows", index=index, output=output)
        for index in ("bisort", "scan")
    ]
    batches, total = [], 0
    for number in range(24):
        scale = (1, 1, 10**9, 2**59, 1, 1)[number // 4]
        groups, drift = rng.integers(0, 3, 20) * scale, 2 ** (2 * number + 10) * (number % 8 > 3)
        batches.append(("rs"[number % 2], pa.table({"g": groups, "x": rng.integers(0, 9, 20) + drift})))
        first, second = (join.push(*batches[-1]) for join in joins)
        assert first.equals(second)
        total += first.num_rows if output == "seqs" else sum(first["count"].to_pylist())
    assert total == len(oracle_run(batches, 60, "r.g = s.g AND abs(r.x - s.x) <= 3")) > 100
    assert 2 < len(layouts) / 2 < 20
    assert sum(found for found, _ in candidates) < 1.2 * sum(matching for _, matching in candidates)


def test_self_joins_and_time_windows() -> None:
    rows = table("text", "int64", 6, 50).append_column("ts", pa.array(np.arange(50) // 2))
    for arguments in ({"self_join": True, "window": "9 rows"}, {"window": "5", "time": "ts"}):
        batches = [("r" if "self_join" in arguments else "rs"[i % 2], rows.slice(i * 10, 10)) for i in range(5)]
        on = "r.g = s.g AND r.x <= s.x"
        joined = [run(batches, on=on, index=index, **arguments) for index in ("auto", "btree", "scan")]
        plain = run(batches, on="r.g = s.g", **arguments)
        if "time" in arguments:
            sides = [pa.concat_tables(b for side, b in batches if side == one).to_pylist() for one in "rs"]
        else:
            sides = [rows_of(rows)] * 2
        holds = [(i, k) for i, k in seqs(plain) if oracle.join([sides[0][i]], [sides[1][k]], on)]
        assert all(seqs(one) == holds for one in joined)
        assert holds


def test_a_probe_holds_either_side(candidates: list[tuple[int, int]]) -> None:
    r, s = table("int64", "float64", 7), table("int64", "float64", 8)
    on = "r.g = s.g AND r.x < s.x"
    found = TableProbe.of(on, r, s.schema, side="r").find_partners(s)
    pairs_found = zip(found.partners.tolist(), found.rows.tolist(), strict=True)
    assert sorted(pairs_found) == oracle_pairs(r, s, on)
    assert only_matches(candidates)


def test_the_direct_strategy_joins_by_a_grouped_key(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(9)
    r, s = (pa.table({"g": rng.integers(0, 40, 9000), "x": rng.random(9000), "n": np.arange(9000)}) for _ in "rs")
    on = "r.g = s.g AND abs(r.x - s.x) < 0.002"
    probed = mr.join(r, s, on=on, index="btree")
    monkeypatch.setattr(TableProbe, "blocks_of", None)
    assert mr.join(r, s, on=on).equals(probed)
    assert probed.num_rows > 1000
    assert direct_join.MIN_ROWS <= 9000


def test_tiny_groups_are_searched_by_the_equality_alone(layouts: list[Matcher]) -> None:
    rows = np.arange(3000)
    for size, grouped in ((2, False), (50, True)):
        one = pa.table({"g": rows // size, "x": rows % 7})
        layouts.clear()
        found = mr.join(one, one, on="r.g = s.g AND r.x < s.x", output="seqs", index="btree")
        assert bool(layouts) == grouped
        assert found.num_rows == _ordered(rows % 7, rows // size)


def _ordered(x: Any, g: Any) -> int:
    return int(((g[:, None] == g) & (x[:, None] < x)).sum())


TWO_KEYS: Any = "two-keys"


def test_an_index_of_two_keys_gets_the_grouped_key_and_the_second_order_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.INDEXES, "two-keys", "tests.host.join.two_keys:TwoKeyIndex")
    monkeypatch.setitem(registry.SERVES, "two-keys", serves_two_keys)
    monkeypatch.setattr(TwoKeyIndex, "shapes", [])
    monkeypatch.setattr(selectivity, "FEW_PARTNERS", -1)
    r, s = table("text", "int64", 10), table("text", "int64", 11)
    on = "r.x < s.x AND r.y > s.y AND r.g = s.g"
    assert seqs(mr.join(r, s, on=on, index=TWO_KEYS)) == oracle_pairs(r, s, on)
    assert "range" in TwoKeyIndex.shapes[0][1]
    batches = [("r", r), ("s", s)]
    assert run(batches, on=on, window="99 rows", index=TWO_KEYS).equals(run(batches, on=on, window="99 rows"))
    assert TwoKeyIndex.shapes[-1] == (("range", "at least"), ("range", "at most"))
    with pytest.raises(mr.ArgumentError, match=r"two-keys.*cannot serve"):
        mr.WindowJoin(on="r.a = s.a AND r.b >= s.b", window="5 rows", index=TWO_KEYS)


def test_doubles_that_round_alike_are_not_grouped() -> None:
    """`s.x + 0.1 = r.x` has several solutions, `abs(s.x) = r.x` two: they may be the order part of a grouped key."""
    rng = np.random.default_rng(12)
    one = pa.table({"x": rng.integers(-9, 9, 80) / 10, "y": rng.integers(0, 5, 80), "g": rng.integers(0, 2, 80)})
    for on in (
        "s.x + 0.1 = r.x AND r.y < s.y",
        "abs(s.x) = r.x AND r.y < s.y",
        "s.x * 3 = r.x AND r.g = s.g",
        "-s.x = -r.x AND r.y < s.y",
        "r.g + r.y = s.y AND r.x < s.x",
        "r.g + r.y = s.x * 10 AND r.y < s.y",
    ):
        wanted = oracle_pairs(one, one, on)
        assert seqs(mr.join(one, one, on=on, index="bisort")) == wanted
        found = run([("r", one), ("s", one)], on=on, window="99 rows")
        assert sorted(seqs(found)) == wanted


def test_an_explanation_says_what_is_grouped() -> None:
    schema = pa.schema({"g": pa.string(), "h": pa.int64(), "x": pa.int64(), "y": pa.int64()})
    found = mr.explain("join", schema, schema, on="r.g = s.g AND r.h = s.h AND r.x < s.x AND r.y < s.y", device="cpu")
    plan = found.to_dict()["plan"]
    assert plan["keys"]["s"] == ["s.x grouped by (s.g, s.h)", "s.y"]
    assert plan["rechecked"] == []
    assert "equality alone" in plan["grouping"]
    plain = mr.explain("join", schema, schema, on="r.g = s.g AND r.x <> s.x", device="cpu").to_dict()["plan"]
    assert plain["keys"] == {"r": ["r.g"], "s": ["s.g"]}
    assert "grouping" not in plain
