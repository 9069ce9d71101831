"""The counts of an index are exact when several threads count at once."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import millrace as mr
from millrace import index


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Threads take turns so often that an increment without a lock is lost."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("quick_switches")
def test_counts_are_exact_under_threads() -> None:
    ix = mr.OrderedIndex(np.arange(100), device="cpu", threads=1)
    status, calls, threads = ix._status, 4000, 4

    def count() -> None:
        for _ in range(calls):
            status.count(lookups=1, queries=2)

    workers = [threading.Thread(target=count) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert (ix.stats["lookups"], ix.stats["queries"]) == (calls * threads, 2 * calls * threads)


def test_calls_are_counted_exactly_under_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread counts while this one computes how much to add."""

    def slow_len(given: Any) -> int:
        time.sleep(1e-4)
        return len(given)

    monkeypatch.setattr(index, "len", slow_len, raising=False)
    ix = mr.OrderedIndex(np.arange(100), device="cpu", threads=1)
    calls, threads = 50, 4

    def call() -> None:
        for _ in range(calls):
            ix.lookup(np.array([1, 2]))
            ix.range(np.array([1]), np.array([2]))

    workers = [threading.Thread(target=call) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    total = calls * threads
    assert [ix.stats[name] for name in ("lookups", "ranges", "queries")] == [total, total, 3 * total]
