"""A signal handler that calls the operator which it has interrupted is refused; nothing is lost, nothing hangs."""

from __future__ import annotations

import faulthandler
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from tests.signals.interrupts import WATCHDOG
from tests.signals.subjects import NAMES, Subject, same

CALLS: dict[str, list[Callable[[Any], Any]]] = {
    "auto": [
        lambda j: j.push("r", pa.table({"x": [1], "y": [1], "t": ["a"]})),
        lambda j: j.flush(),
        lambda j: j.state(),
        lambda j: j.recover(),
        lambda j: j.close(),
    ],
    "knn": [lambda j: j.push("s", pa.table({"x": [1.0], "y": [1.0]})), lambda j: j.state()],
    "gate": [lambda g: g.ready(0), lambda g: g.add(0, pa.table({"ts": [10**6], "x": [1]})), lambda g: g.recover()],
    "live": [lambda run: run.live.put("r", {"x": 1}), lambda run: run.live.poll(), lambda run: run.live.state()],
    "index-regular-cpu": [
        lambda ix: ix.lookup([1]),
        lambda ix: ix.update(delete=[2]),
        lambda ix: ix.close(),
        lambda ix: ix.__exit__(None, None, None),
        len,
    ],
}


@pytest.mark.parametrize("name", CALLS)
def test_a_handler_that_calls_the_operator_is_refused(name: str) -> None:
    """The handler runs at a random function of the library, in the middle of a call."""
    subject: Subject = NAMES[name]
    subject.stored.clear()
    hit, spared, refused = subject.make(), subject.make(), 0
    rng, inner = np.random.default_rng(3), CALLS[name]

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal refused
        sys.setprofile(None)
        with pytest.raises(mr.StateError, match="signal handler"):
            inner[refused % len(inner)](hit)
        refused += 1

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        for kind, call in subject.steps(rng):
            entries = int(rng.integers(2, 60))
            wanted, found = call(spared), _with_signal(lambda: call(hit), entries, INSIDE[name])  # noqa: B023 - called at once
            assert same(found, wanted), kind
            hit = subject.after(hit, found)
            if refused >= 60:
                break
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert refused >= 60


def _with_signal(call: Callable[[], Any], entries: int, inside: set[str]) -> Any:
    """Raise a signal when the n-th function of the library begins that runs under the operator's lock."""

    def count(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal entries
        under = frame.f_back is not None and frame.f_back.f_code.co_name in inside
        if event == "call" and under and "millrace" in frame.f_code.co_filename:
            entries -= 1
            if entries % 7 == 0:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGUSR1)

    sys.setprofile(count)
    try:
        return call()
    finally:
        sys.setprofile(None)


INSIDE = {
    "auto": {"_match", "_commit", "results", "read", "extend"},
    "knn": {"_match", "_commit", "results", "read", "extend"},
    "gate": {"_merge", "_gathered", "screen"},
    "live": {"wake_worker"},
    "index-regular-cpu": {"_look_up", "_ranges"},
}
"""Functions that only run while the operator is at work in their thread."""


class CallingInput:
    """Two keys that call something while they are read."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        self.call()
        return pa.array([1, 2]).__arrow_c_array__(requested_schema)


@pytest.mark.parametrize("layout", ["implicit", "regular"])
def test_an_update_whose_input_calls_the_index_does_not_hang(layout: Any) -> None:
    """The input is read before the update takes its locks, so such calls come before it."""
    ix = mr.OrderedIndex([1, 2, 3], layout=layout)
    with no_hang():
        ix.update(upsert=CallingInput(lambda: ix.update(delete=[3])))
        assert ix.lookup([1, 2, 3]).to_pylist() == [3, 4, None]
        ix.update(delete=CallingInput(lambda: ix.lookup([1])))
        assert len(ix) == 0
        with pytest.raises(mr.StateError, match="released"):
            ix.update(delete=CallingInput(lambda: ix.__exit__(None, None, None)))


@contextmanager
def no_hang() -> Iterator[None]:
    """A hang ends the process with all stacks."""
    faulthandler.dump_traceback_later(WATCHDOG, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def test_a_checkpoint_on_sigterm_by_a_flag() -> None:
    """The documented way: the handler sets a flag, and the loop checks it between calls."""
    asked: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    join = mr.WindowJoin("r.x = s.x", window="10 rows")
    try:
        for number in range(100):
            if number == 40:
                signal.raise_signal(signal.SIGTERM)
            join.push("rs"[number % 2], pa.table({"x": [number // 2]}))
            if asked:
                break
    finally:
        signal.signal(signal.SIGTERM, before)
    delta = join.state()
    again = mr.WindowJoin.restore(delta.manifest, delta.added, on="r.x = s.x", window="10 rows")
    assert again.push("s", pa.table({"x": [20]})).to_pydict() == {
        "r_seq": [20],
        "s_seq": [20],
        "r_x": [20],
        "s_x": [20],
    }
