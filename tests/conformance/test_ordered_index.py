"""`mr.OrderedIndex` equals a dictionary and a sorted list, on every device that supports it, in both layouts.

Keys and queries are drawn from all key types, also of different types for keys and queries; many are equal, null, NaN,
-0.0, or extremes of their type, the largest word included. Sizes are close to those of lines, nodes and big leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, nan
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.hbtree.layout import LAYOUTS
from millrace.host.hybrid.search_engine import UNITS
from tests.conformance.injection import INDEX, case_faults, device_points
from tests.conformance.kinds import KEY_KINDS, KINDS, Kind, Raw
from tests.conformance.suite import CASES, SEED
from tests.conformance.summary import PROPERTY
from tests.index_oracle import Index

SHARDS = 2
QUOTA = ceil(CASES / 4 / SHARDS)
SIZES = (0, 1, 2, 7, 8, 9, 15, 16, 17, 64, 65, 72, 73, 100, 256, 257, 511, 512, 513, 700, 4096, 4097, 5000)
VALUES: dict[str, Callable[[Random, int], pa.Array | None]] = {
    "rows": lambda rng, n: None,
    "int64": lambda rng, n: pa.array([rng.randrange(-(2**63), 2**63) for _ in range(n)], pa.int64()),
    "uint32": lambda rng, n: pa.array([rng.randrange(2**32) for _ in range(n)], pa.uint32()),
    "float64": lambda rng, n: pa.array([rng.random() for _ in range(n)], pa.float64()),
    "timestamp": lambda rng, n: pa.array([rng.randrange(10**9) for _ in range(n)], pa.timestamp("s")),
    "nulls": lambda rng, n: pa.array([rng.choice((None, i)) for i in range(n)], pa.int64()),
    "bool": lambda rng, n: pa.array([rng.random() < 0.5 for _ in range(n)], pa.bool_()),
    "string": lambda rng, n: pa.array([f"row {i}" for i in range(n)], pa.string()),
    "list": lambda rng, n: pa.array([[i] * (i % 3) for i in range(n)], pa.list_(pa.int16())),
    "sliced": lambda rng, n: pa.array(range(n + 5), pa.int64()).slice(3, n),
}


def devices() -> list[str]:
    """Returns the devices that can search both layouts."""
    names = [info.name for info in mr.devices() if info.available and info.kind != "null"]
    return [name for name in names if set(UNITS.values()) <= mr.device(name).units]


def test_cpu_opencl_and_emulated_cuda_take_part() -> None:
    families = {name.partition(":")[0] for name in devices()}
    assert {"cpu", "opencl", "cuda-emulated"} <= families


@pytest.mark.parametrize("seed", [SEED * 1000 + 700 + shard for shard in range(SHARDS)], ids="seed={}".format)
def test_index_equals_the_oracle(seed: int, record_property: Callable[[str, object], None]) -> None:
    rng = Random(seed)
    served: dict[str, int] = {}
    hits = 0
    names = devices()
    for number in range(QUOTA):
        device = names[number % len(names)]
        layout = LAYOUTS[number // len(names) % len(LAYOUTS)]
        hits += run(Random(rng.randrange(2**63)), device, layout)
        name = f"{layout} on {device}"
        served[name] = served.get(name, 0) + 1
    record_property(PROPERTY, {"operator": "ordered_index", "cases": QUOTA, "covered": {}, "served": served})
    assert hits >= QUOTA // 4


def run(rng: Random, device: str, layout: Any) -> bool:
    """Runs one random case; returns whether a lookup found something."""
    key_kind, query_kind = (KINDS[name] for name in rng.choice(KEY_KINDS))
    duplicates = rng.choice(("first", "last", "error"))
    keys = draw(rng, key_kind, rng.choice(SIZES))
    make_values = rng.choice(sorted(VALUES))
    values = VALUES[make_values](rng, len(keys))
    oracle = Index([key_kind.known(k) for k in keys], None if values is None else values.to_pylist(), duplicates)
    what = (
        f"{len(keys)} {key_kind.name} keys, {make_values}, {query_kind.name} queries, {layout}, {duplicates}, {device}"
    )
    arguments: dict[str, Any] = {
        "layout": layout,
        "device": device,
        "threads": rng.choice((1, 2, 3)),
        "duplicates": duplicates,
    }
    if duplicates == "error" and oracle.has_duplicates:
        with pytest.raises(mr.ArgumentError, match="duplicates="):
            mr.OrderedIndex(key_kind.arrow(keys), values, **arguments)
        return False
    with case_faults([*INDEX, "index.send", "index.search", *device_points(device)], rng.random()) as injection:
        arguments |= injection.fallback(device)
        made = injection.call(lambda: mr.OrderedIndex(key_kind.arrow(keys), values, **arguments))
        index = injection.retried(made, ("rows", "null_keys"))
        return check_queries(rng, index, oracle, (key_kind, query_kind), keys, values, what)


def check_queries(
    rng: Random,
    index: mr.OrderedIndex,
    oracle: Index,
    kinds: tuple[Kind, Kind],
    keys: list[Raw],
    values: pa.Array | None,
    what: str,
) -> bool:
    """Looks keys and ranges up; returns whether a lookup found something."""
    key_kind, query_kind = kinds
    assert (len(index), index.stats["null_keys"]) == (len(oracle), oracle.nulls), what
    queries = draw_queries(rng, key_kind, query_kind, keys)
    known = [query_kind.known(q) for q in queries]
    found = index.lookup(query_kind.arrow(queries))
    assert found.type == (pa.int64() if values is None else values.type), what
    assert found.to_pylist() == oracle.lookup(known), what
    found.validate(full=True)
    others = rng.sample(queries, len(queries))
    lists = index.range(query_kind.arrow(queries), query_kind.arrow(others))
    lists.validate(full=True)
    assert lists.to_pylist() == oracle.range(known, [query_kind.known(q) for q in others]), what
    return bool(found.null_count < len(found))


def draw(rng: Random, kind: Kind, size: int) -> list[Raw]:
    """Draws keys of a kind: sorted or not, close together or far apart, some extreme, some null."""
    if kind.is_float:
        spread = rng.choice((10.0, 1e6, 1e30))
        raws: list[Raw] = [
            kind.store(rng.choice((rng.uniform(-spread, spread), float(rng.randrange(-9, 9))))) for _ in range(size)
        ]
    else:
        middle, width = (
            rng.choice((0, kind.low, kind.high)),
            rng.choice((size // 2 + 1, size * 8 + 1, kind.high - kind.low)),
        )
        raws = [kind.store(middle + rng.randint(-width, width)) for _ in range(size)]
    extremes: list[Raw] = [*kind.extremes(), None, *([nan] if kind.is_float else [])]
    for row in rng.sample(range(size), min(size, rng.choice((0, 1, size // 4)))):
        raws[row] = rng.choice(extremes)
    if rng.random() < 0.3:
        raws = sorted((raw for raw in raws if raw is not None and raw == raw), key=lambda raw: (raw, str(raw)))
    if rng.random() < 0.3:
        seen = {raw: raw for raw in raws if raw is not None and raw == raw}
        raws = list(seen.values())
    return raws


def draw_queries(rng: Random, key_kind: Kind, kind: Kind, keys: list[Raw]) -> list[Raw]:
    """Draws queries of a kind: values of keys, values close to them, extremes of the type, nulls."""
    queries: list[Raw] = []
    there = [key for key in keys if key is not None and key == key]
    for key in rng.choices(there, k=rng.choice((0, 1, 31, 32, 33, 200))) if there else []:
        if abs(key) == float("inf"):
            continue
        ticks = key * key_kind.unit // kind.unit if kind.unit and isinstance(key, int) else key
        queries.append(kind.store(ticks + rng.choice((0, 0, 0, 1, -1, 0.5))))
    queries += rng.choices([*kind.extremes(), None], k=rng.choice((0, 5, 40)))
    rng.shuffle(queries)
    return queries


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_large_trees_agree_between_devices(layout: Any, dtype: type) -> None:
    """Enough keys for all levels, enough queries for several buckets; the largest word is a key."""
    rng = np.random.default_rng(7)
    max_key = np.iinfo(dtype).max
    keys = np.unique(rng.integers(0, max_key, 150_000, dtype=dtype, endpoint=True))
    keys = np.append(keys[keys < max_key], dtype(max_key))
    queries = np.concatenate([rng.choice(keys, 40_000), rng.integers(0, max_key, 20_000, dtype=dtype), keys[-1:]])
    positions = np.searchsorted(keys, queries)
    wanted = pa.array(positions, mask=keys[positions] != queries)
    for device in devices():
        index = mr.OrderedIndex(keys, layout=layout, device=device)
        assert index.lookup(queries).equals(wanted), device
        counts = index.range(queries[:100], max_key).value_lengths().to_numpy()
        assert (counts == len(keys) - positions[:100]).all(), device
