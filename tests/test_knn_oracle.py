"""Examples for the oracle of nearest neighbours, worked out by hand."""

from __future__ import annotations

from typing import Any

from tests.knn_oracle import RADIUS, KnnJoin, Search, knn_join

XY = (("x", "y"), ("x", "y"))


def at(x: Any, y: Any, **more: Any) -> dict[str, Any]:
    return {"x": x, "y": y, **more}


def test_order_ties_and_fewer_than_k() -> None:
    s = [at(3, 4), at(0, 5), at(0, 1), at(None, 0), at(float("inf"), 0)]
    assert knn_join([at(0, 0)], s, Search(XY, 9)) == [
        (0, 0, 0, 0, 2, 1.0),
        (0, 0, 1, 0, 0, 5.0),
        (0, 0, 2, 0, 1, 5.0),
    ]
    assert knn_join([at(0, 0)], s, Search(XY, 2)) == [(0, 0, 0, 0, 2, 1.0), (0, 0, 1, 0, 0, 5.0)]


def test_within_is_inclusive_and_left_keeps_r() -> None:
    search = Search(XY, 3, within=5, how="left")
    assert knn_join([at(0, 0), at(9, 9)], [at(3, 4)], search) == [
        (0, 0, 0, 0, 0, 5.0),
        (0, 1, None, None, None, None),
    ]


def test_groups_and_self_joins() -> None:
    rows = [at(0, 0, g="a"), at(1, 0, g="b"), at(3, 0, g="a"), at(0, 0, g=None)]
    grouped = Search(XY, 1, by=(("g",), ("g",)))
    assert knn_join(rows, None, grouped) == [(0, 0, 0, 0, 2, 3.0), (0, 2, 0, 0, 0, 3.0)]


def test_haversine() -> None:
    search = Search(XY, 2, "haversine")
    found = knn_join([at(0, 0)], [at(90, 0), at(0, 90), at(180, 0), at(0, 91)], search)
    assert [one[4] for one in found] == [0, 1]
    assert all(abs(one[5] - RADIUS * 3.141592653589793 / 2) < 1e-6 for one in found if one[5] is not None)


def test_a_count_window_in_order_of_arrival() -> None:
    j = KnnJoin(Search(XY, 5), 2)
    assert j.push("s", [at(1, 0), at(2, 0), at(3, 0)]) == []
    assert j.push("r", [at(0, 0)]) == [(0, 0, 0, 0, 1, 2.0), (0, 0, 1, 0, 2, 3.0)]


def test_a_time_window_waits_for_s_and_takes_it_first() -> None:
    j = KnnJoin(Search(XY, 5), 4, counts=False, time=("t", "t"))
    assert j.push("r", [at(0, 0, t=5)]) == []
    assert j.push("s", [at(9, 0, t=0), at(1, 0, t=1), at(2, 0, t=5), at(3, 0, t=6)]) == [
        (0, 0, 0, 0, 1, 1.0),
        (0, 0, 1, 0, 2, 2.0),
    ]
    assert (j.pending, j.held) == (1, 2)
    assert j.flush() == []


def test_a_self_join_meets_earlier_rows() -> None:
    j = KnnJoin(Search(XY, 5), 1, self_join=True)
    assert j.push("r", [at(0, 0), at(1, 0), at(3, 0)]) == [(0, 1, 0, 0, 0, 1.0), (0, 2, 0, 0, 1, 2.0)]
