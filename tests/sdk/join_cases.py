"""Small joins for tests of bad input and faults: rows to push, and checks that a failed call changed nothing."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr

COUNT: dict[str, Any] = {"on": "abs(r.x - s.x) <= 1", "window": "6 rows"}
TIME: dict[str, Any] = {"on": "abs(r.x - s.x) <= 1", "window": "4", "time": "ts"}
STAMPS: dict[str, Any] = {"on": "abs(r.x - s.x) <= 1", "window": "4 seconds", "time": "ts"}
MEANING = ("rows", "late", "null_times", "null_keys", "pending", "held", "pairs", "device", "index")


def rows(start: int, count: int = 5, unit: str | None = None, tz: str | None = None) -> pa.Table:
    numbers = np.arange(start, start + count)
    times = pa.array(numbers) if unit is None else pa.array(numbers).view(pa.timestamp(unit, tz))
    return pa.table({"ts": times, "x": numbers % 4, "text": [f"row {n}" for n in numbers]})


def feed(j: mr.WindowJoin, start: int, unit: str | None = None, tz: str | None = None) -> list[pa.Table]:
    found = [j.push("r", rows(start, unit=unit, tz=tz))]
    if not j._args.self_join:
        found.append(j.push("s", rows(start + 1, unit=unit, tz=tz)))
    return found


def meaning(j: mr.WindowJoin) -> dict[str, Any]:
    return {name: j.stats[name] for name in MEANING}


def check_message(error: BaseException, parts: tuple[str, ...]) -> None:
    message = str(error)
    for part in parts:
        assert part in message, f"{part!r} is not in {message!r}"
    assert len(message) < 2000
    assert type(pickle.loads(pickle.dumps(error))) is type(error)
    assert str(pickle.loads(pickle.dumps(error))) == message


def unharmed(
    arguments: dict[str, Any],
    bad: Callable[[mr.WindowJoin], Any],
    kind: type[BaseException],
    *parts: str,
    unit: str | None = None,
    tz: str | None = None,
) -> None:
    """`bad` fails on a fresh join and on one in use, with a good message, and neither notices."""
    for warm in (0, 1, 2):
        hit, spared = mr.WindowJoin(**arguments), mr.WindowJoin(**arguments)
        for join in (hit, spared):
            for i in range(warm):
                feed(join, 5 * i, unit, tz)
        before = meaning(hit)
        with pytest.raises(kind) as caught:
            bad(hit)
        check_message(caught.value, parts)
        assert meaning(hit) == before
        goes_on_alike(hit, spared, 5 * warm, unit, tz)


def goes_on_alike(
    hit: mr.WindowJoin, spared: mr.WindowJoin, start: int, unit: str | None = None, tz: str | None = None
) -> None:
    total = 0
    for i in range(3):
        for one, other in zip(feed(hit, start + 5 * i, unit, tz), feed(spared, start + 5 * i, unit, tz), strict=True):
            assert one.equals(other)
            total += other.num_rows
        assert meaning(hit) == meaning(spared)
    assert hit.close().equals(spared.close())
    assert total > 0
