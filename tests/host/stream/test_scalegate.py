"""The compiled gate with threads that never leave compiled code: sources that append one by one, readers that copy."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from millrace.host.runtime.intrinsics import address, load, store
from millrace.host.runtime.jit import kernel
from millrace.host.runtime.thread_sleep import pause
from millrace.host.stream.scalegate import Gate, Inbox
from millrace.host.stream.scalegate_kernel import FULL, LATE, append_one, close_source, read_ready


@kernel
def _append(gate: int, source: int, times: int, count: int, late: int) -> None:
    """Append tuples one by one; the word of each is its number."""
    for i in range(count):
        while True:
            found = append_one(gate, source, load(times, i), i)
            if found == LATE:
                store(late, 0, load(late, 0) + 1)
            if found != FULL:
                break
            pause()
    close_source(gate, source)


@kernel
def _read(gate: int, reader: int, wanted: int, most: int, times: int, sources: int, words: int) -> None:
    done = 0
    while done < wanted:
        here = 8 * done
        more = read_ready(gate, reader, min(most, wanted - done), times + here, sources + here, words + here)
        done += more
        if more == 0:
            pause()


@pytest.mark.parametrize(("sources", "readers", "ring", "log"), [(1, 1, 4, 4), (4, 2, 16, 8), (7, 3, 1024, 64)])
def test_threads_share_a_gate(sources: int, readers: int, ring: int, log: int) -> None:
    """Small rings and logs, so that sources and readers wait for each other all the time."""
    rng = np.random.default_rng(sources)
    count = 3000
    gate = Gate(sources, readers, ring, log)
    times = np.cumsum(rng.integers(-1, 3, (sources, count)), axis=1)
    largest = np.maximum.accumulate(times, axis=1)
    kept = times >= np.concatenate([times[:, :1], largest[:, :-1]], axis=1)
    rows = [(int(times[q, i]), q, i) for q in range(sources) for i in np.flatnonzero(kept[q])]
    late = np.zeros((sources, 8), np.int64)
    got = np.zeros((readers, 3, len(rows)), np.int64)
    threads = [
        threading.Thread(target=_append, args=(gate.address, q, address(times[q]), count, address(late[q])))
        for q in range(sources)
    ]
    for reader in range(readers):
        given = (gate.address, reader, len(rows), reader + 1, *(address(line) for line in got[reader]))
        threads.append(threading.Thread(target=_read, args=given))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert late[:, 0].tolist() == (count - kept.sum(axis=1)).tolist()
    for reader in range(readers):
        assert list(map(tuple, got[reader].T.tolist())) == sorted(rows)


def test_an_inbox_says_where_its_tuples_begin() -> None:
    gate, inbox = Gate(1, 1), Inbox(3)
    times = np.arange(5)
    gate.append(0, times, *gate.screen(0, times, None), 0)
    for first, expected in ((0, [0, 1, 2]), (3, [3, 4]), (5, [])):
        gate.read(0, inbox)
        assert (inbox.first, inbox.times.tolist(), inbox.words.tolist()) == (first, expected, expected)
        inbox.clear()
    assert (gate.clock(0), gate.slowest_source(), gate.waiting) == (4, 0, 0)
