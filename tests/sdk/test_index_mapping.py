"""`OrderedIndex` as a mapping in order: floor, ceil, nearest, `in`, `[]`, iteration; copies and pickles."""

from __future__ import annotations

import copy
import math
import pickle
from datetime import UTC, datetime
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from tests.index_oracle import Index

LAYOUTS: Any = ("implicit", "regular")
TYPES = ("int8", "int32", "uint32", "int64", "uint64", "float32", "float64")


def drawn_key(rng: Random, kind: str) -> Any:
    """A key of a type: often small, sometimes at an end of the type."""
    if kind.startswith("float"):
        wide = [math.inf, -math.inf, 0.1, 1e30, -1e30, 1.7e308 if kind == "float64" else 3e38, 5e-324, 2.0**60]
        return float(np.dtype(kind).type(rng.choice([rng.randrange(-40, 40) / 4, rng.random(), rng.choice(wide)])))
    info = np.iinfo(kind)
    near = rng.choice([0, int(info.min), int(info.max), 1 << 20 if info.bits > 8 else 3])
    return min(max(near + rng.randrange(-20, 20), int(info.min)), int(info.max))


def drawn_queries(rng: Random, kind: str, keys: list[Any]) -> pa.Array:
    """Queries of some type: keys, values between them, ends, null and NaN."""
    match rng.randrange(3):
        case 0:
            drawn = [rng.choice([*keys, drawn_key(rng, kind)]) for _ in range(30)]
            return pa.array([*drawn, None], kind)
        case 1:
            drawn = [drawn_key(rng, "float64") for _ in range(20)]
            drawn += [float(rng.choice(keys)) + rng.choice((-0.5, 0.5, 0.25)) for _ in range(10) if keys]
            return pa.array([*drawn, math.nan, None], pa.float64())
        case _:
            other = rng.choice(("int64", "uint64", "int32"))
            return pa.array([*(drawn_key(rng, other) for _ in range(30)), None], other)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", TYPES)
def test_neighbours_equal_the_oracle(kind: str, layout: Any) -> None:
    rng = Random(f"{kind} {layout}")
    for size in (0, 1, 2, 5, 30, 400):
        duplicates: Any = rng.choice(("first", "last"))
        keys = [drawn_key(rng, kind) for _ in range(size)]
        values: Any = rng.choice((None, [f"v{i}" for i in range(size)]))
        typed_values = None if values is None else pa.array(values, pa.string())
        ix = mr.OrderedIndex(pa.array(keys, kind), typed_values, layout=layout, duplicates=duplicates)
        oracle = Index(keys, values, duplicates)
        for step in range(3):
            queries = drawn_queries(rng, kind, keys)
            plain = queries.to_pylist()
            for name in ("floor", "ceil", "nearest"):
                assert getattr(ix, name)(queries).to_pylist() == getattr(oracle, name)(plain), (name, size, queries)
            assert [query in ix for query in queries] == [query in oracle.in_order() for query in plain]
            assert list(ix) == oracle.in_order()
            more = [drawn_key(rng, kind) for _ in range(size // 10 + 1)]
            added: Any = None if values is None else [f"n{step}{i}" for i in range(len(more))]
            gone = [rng.choice(keys)] if keys else []
            typed = pa.array(more, kind)
            ix.update(upsert=typed if added is None else (typed, added), delete=pa.array(gone, kind))
            oracle.update(more, added, gone)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_times_between_two_keys(layout: Any) -> None:
    ix = mr.OrderedIndex(pa.array([10, 13, 20], pa.timestamp("s", "UTC")), layout=layout)
    halves = pa.array([9_999, 11_499, 11_500, 11_501, 16_500, 16_501, 99_999], pa.timestamp("ms", "UTC"))
    assert ix.nearest(halves).to_pylist() == [0, 0, 0, 1, 1, 2, 2]
    assert ix.floor(halves).to_pylist() == [None, 0, 0, 0, 1, 1, 2]
    assert ix.ceil(halves).to_pylist() == [0, 1, 1, 1, 2, 2, None]
    assert next(iter(ix)) == datetime(1970, 1, 1, 0, 0, 10, tzinfo=UTC)
    assert datetime(1970, 1, 1, 0, 0, 13, tzinfo=UTC) in ix


@pytest.mark.parametrize("layout", LAYOUTS)
def test_distances_are_exact(layout: Any) -> None:
    large = mr.OrderedIndex(pa.array([float(2**60), float(2**60 + 512)]), layout=layout)
    assert large.nearest(pa.array([2**60 + 255, 2**60 + 256, 2**60 + 257])).to_pylist() == [0, 0, 1]
    huge = mr.OrderedIndex(pa.array([-1.7e308, 1.7e308]), layout=layout)
    assert huge.nearest(pa.array([0.0, 5e-324, -5e-324])).to_pylist() == [0, 1, 0]
    ends = mr.OrderedIndex(pa.array([-(2**63), 2**63 - 1]), layout=layout)
    assert ends.nearest(pa.array([-1, 0, -0.5])).to_pylist() == [0, 1, 0]


def test_a_device_has_the_same_neighbours() -> None:
    keys, queries = np.arange(0, 9000, 3), np.arange(-5, 9010, 7) + 0.5
    with mr.OrderedIndex(keys, device="opencl") as ix:
        for name in ("floor", "ceil", "nearest"):
            assert getattr(ix, name)(queries).equals(getattr(mr.OrderedIndex(keys), name)(queries))


def test_one_key_at_a_time() -> None:
    ix = mr.OrderedIndex(pa.array([1.5, -0.0]), pa.array(["a", None]))
    assert ix[1.5] == "a"
    assert ix[0] is None
    for absent in (7, None, math.nan, 2**70):
        assert absent not in ix
        with pytest.raises(KeyError):
            ix[absent]
    for several in ([1.5], slice(0, 2), np.array([1.5])):
        with pytest.raises(mr.ArgumentError, match="lookup"):
            ix[several]
    with pytest.raises(mr.KeyTypeError):
        _ = "text" in ix


def test_iteration_survives_an_update() -> None:
    ix = mr.OrderedIndex([1, 2, 3], layout="regular")
    keys = iter(ix)
    ix.update(delete=[2])
    assert list(keys) == [1, 2, 3]
    assert list(ix) == [1, 3]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda ix: pickle.loads(pickle.dumps(ix))])
def test_a_copy_is_an_index_of_its_own(duplicate: Any, layout: Any) -> None:
    ix = mr.OrderedIndex(pa.array([3, 1, 2]), ["c", "a", "b"], layout=layout, threads=1)
    other = duplicate(ix)
    other.update(upsert=([9], ["i"]), delete=[1])
    ix.update(delete=[3])
    assert ix.range(0, 10).to_pylist() == [["a", "b"]]
    assert other.range(0, 10).to_pylist() == [["b", "c", "i"]]
    assert other.stats["layout"] == layout


def test_a_released_index_is_not_copied() -> None:
    with mr.OrderedIndex([1]) as ix:
        pass
    for attempt in (copy.copy, pickle.dumps, list, lambda ix: ix.floor([1]), lambda ix: 1 in ix):
        with pytest.raises(mr.StateError, match="released"):
            attempt(ix)
