"""Bad arguments and columns of nearest-neighbour joins: a typed error that says what to do, and nothing has changed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import millrace as mr

POINTS = pa.table({"x": [0.0, 1.0], "y": [0.0, 2.0], "team": ["a", "b"], "n": [1, 2]})
TWO: dict[str, Any] = {"on": ("x", "y"), "k": 1}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"on": None}, "on=None: allowed are the names of 2 to 8 columns"),
        ({"on": "x"}, "on='x': allowed"),
        ({"on": ("x",)}, "has 1 dimensions; allowed are 2 to 8"),
        ({"on": tuple("abcdefghi")}, "has 9 dimensions"),
        ({"on": (("x", "y"), ("x",))}, "r has 2 dimensions and s has 1"),
        ({"on": ("x", "y", "n"), "metric": "haversine"}, "longitude and latitude"),
        ({"k": 0}, "k=0: must be a whole number of at least 1"),
        ({"k": 2.5}, r"k=2\.5"),
        ({"k": True}, "k=True"),
        ({"within": -1}, "within=-1: must be a number of at least 0"),
        ({"within": float("nan")}, "within=nan"),
        ({"within": "1"}, "within='1'"),
        ({"metric": "taxi"}, "metric='taxi' is unknown; allowed are 'euclidean', 'haversine'"),
        ({"by": 3}, "by=3: allowed are a column name"),
        ({"by": ("a", "b", "c")}, "by="),
        ({"how": "anti"}, "how='anti' is unknown; allowed are 'inner', 'left'"),
        ({"output": "count"}, "allowed are 'pairs', 'seqs'"),
        ({"self_join": 1}, "self_join=1"),
        ({"threads": 0}, "threads=0"),
        ({"device": "abacus"}, "device='abacus' is unknown"),
        ({"fallback": "rtl"}, "fallback='rtl'"),
        ({"options": {"speed": 1}}, "do not have the option 'speed'; their options are partitions, map, replace"),
        ({"options": {"partitions": 0}}, "partitions=0: must be a whole number of at least 1"),
        ({"options": {"map": "voronoi"}}, "map='voronoi'"),
        ({"options": {"replace": "now"}}, "replace='now'"),
        ({"options": ["speed"]}, "must be a mapping"),
    ],
)
def test_a_bad_argument(changed: dict[str, Any], message: str) -> None:
    given = {**TWO, **changed}
    for call in (
        lambda: mr.knn_join(POINTS, POINTS, **given),
        lambda: mr.KnnJoin(**given, window="5 rows"),
        lambda: mr.explain("knn_join", POINTS, POINTS, **given),
    ):
        with pytest.raises(mr.ArgumentError, match=message):
            call()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"window": ("5 rows", "6 rows")}, "has one window, s's"),
        ({"window": "5 minutes"}, "name the time column"),
        ({"window": "0 rows"}, "at least 1 row"),
        ({"lateness": 3}, "needs time="),
        ({"sources": {"s": 2}}, "needs time="),
        ({"max_pending": 0}, "max_pending=0"),
    ],
)
def test_a_bad_argument_of_a_stream(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(mr.ArgumentError, match=message):
        mr.KnnJoin(**{**TWO, "window": "5 rows", **changed})


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"on": ("x", "z")}, mr.SchemaError, "on names r.z, but r has no such column; its columns are x, y, team, n"),
        ({"on": ("x", "team")}, mr.KeyTypeError, "column r.team has type string, which is no coordinate"),
        ({"by": "zone"}, mr.SchemaError, "by names r.zone"),
        ({"by": ("team", "n")}, mr.SchemaError, r"by pairs r.team \(string\) with s.n \(int64\)"),
        ({"by": ("n", "x")}, mr.SchemaError, "never equal: cast one of them"),
    ],
)
def test_bad_columns(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    given = {**TWO, **changed}
    with pytest.raises(error, match=message):
        mr.knn_join(POINTS, POINTS, **given)
    with pytest.raises(error, match=message):
        mr.KnnJoin(**given, window="5 rows", schemas={"r": POINTS.schema, "s": POINTS.schema})
    j = mr.KnnJoin(**given, window="5 rows")
    with pytest.raises(error, match=message):
        list(j.run([("r", POINTS), ("s", POINTS)]))
    assert j.stats["pairs"] == 0


def test_tables_that_are_missing_or_too_many() -> None:
    with pytest.raises(mr.ArgumentError, match="s=None"):
        mr.knn_join(POINTS, **TWO)
    with pytest.raises(mr.ArgumentError, match="leave s out"):
        mr.knn_join(POINTS, POINTS.slice(1), **TWO, self_join=True)
    clash = POINTS.rename_columns(["x", "y", "seq", "n"])
    with pytest.raises(mr.SchemaError, match="several columns named r_seq, s_seq"):
        mr.knn_join(clash, clash, **TWO)


def test_devices_that_do_not_search_points_say_which_do() -> None:
    with pytest.raises(mr.DeviceUnavailable, match="it runs on cpu"):
        mr.knn_join(POINTS, POINTS, **TWO, device="null")
    assert mr.knn_join(POINTS, POINTS, **TWO, device="cpu", fallback="cpu").num_rows == 2


def test_a_failed_call_changes_nothing() -> None:
    j, spared = (mr.KnnJoin(**TWO, window="5 rows") for _ in range(2))
    for one in (j, spared):
        one.push("s", POINTS)
    for side, batch in (("s", POINTS.drop_columns("n")), ("t", POINTS), ("s", 3)):
        with pytest.raises(mr.MillraceError):
            j.push(side, batch)
    assert j.stats == spared.stats
    assert j.push("r", POINTS).equals(spared.push("r", POINTS))


def test_a_state_of_other_arguments_is_refused() -> None:
    j = mr.KnnJoin(**TWO, window="5 rows")
    j.push("s", POINTS)
    delta = j.state()
    with pytest.raises(mr.StateError, match="k was 1, now 2"):
        mr.KnnJoin.restore(delta.manifest, delta.added, **{**TWO, "k": 2}, window="5 rows")
    with pytest.raises(mr.StateError):
        mr.WindowJoin.restore(delta.manifest, delta.added, on="r.x = s.x", window="5 rows")


def test_explanations() -> None:
    text = str(mr.explain("knn_join", POINTS, POINTS.schema, **TWO, within=3))
    assert all(part in text for part in ("plan k           1", "hilbert", "cpu"))
    stream = mr.explain("knn_join", **TWO, window="5 rows").to_dict()
    assert stream == mr.KnnJoin(**TWO, window="5 rows").explain().to_dict()
    assert "KnnJoin of the 1 nearest" in repr(mr.KnnJoin(**TWO, window="5 rows"))


def test_a_radius_beyond_every_distance_is_no_limit() -> None:
    assert mr.knn_join(POINTS, POINTS, **TWO, within=10**400).equals(mr.knn_join(POINTS, POINTS, **TWO))
