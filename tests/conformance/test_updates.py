"""`OrderedIndex.update` as a state machine: upsert, delete, lookup, range, save and open, compared with a sorted list.

Runs on `cpu` and `opencl`, in both layouts and both word widths, with values of every storage form: next to their
words, separate, and as row numbers. Small batches exercise the update paths of large trees because limits are patched:
a large batch never rebuilds the index, and updates run in small groups.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import millrace as mr
from millrace.host.hbtree import editor
from millrace.host.hbtree.layout import LAYOUTS
from millrace.host.hybrid import update_runner
from millrace.index_parts import regular_rows
from tests.conformance.injection import INDEX, case_faults, device_points
from tests.conformance.suite import CASES
from tests.host.trees_checked import TreeChecker
from tests.index_oracle import Index

DEVICES = ("cpu", "opencl:0")
KEYS = {"int64": (pa.int64(), 63), "uint32": (pa.uint32(), 32), "int32": (pa.int32(), 31), "uint64": (pa.uint64(), 64)}
VALUES: dict[str, Callable[[int], Any] | None] = {
    "rows": None,
    "int64": lambda n: n - 5,
    "float32": float,
    "nulls": lambda n: None if n % 3 == 0 else n,
    "string": lambda n: f"v{n}",
}
TYPES = {"int64": pa.int64(), "float32": pa.float32(), "nulls": pa.int64(), "string": pa.string()}


class Machine(RuleBasedStateMachine):
    """An index and its oracle; the subclasses set the device and the layout."""

    device, layout = "cpu", "regular"

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.faults = ExitStack()
        self.ix: mr.OrderedIndex | None = None
        self.number = 0

    def teardown(self) -> None:
        self.faults.close()
        self.folder.cleanup()

    # Keys: dense runs (splits in one node), anywhere in a small range, and the extremes of the type.

    def keys(self, data: st.DataObject) -> list[int]:
        max_key = 2**self.bits - 1
        kind = data.draw(st.sampled_from(("run", "few", "many", "ends")))
        if kind == "run":
            first, size = data.draw(st.integers(0, 5000)), data.draw(st.integers(1, 900))
            return list(range(first, first + size))
        if kind == "few":
            return data.draw(st.lists(st.integers(0, 40), max_size=12))
        if kind == "many":
            first, step = data.draw(st.integers(0, 50)), data.draw(st.integers(1, 7))
            return list(range(first, first + 700 * step, step))
        return data.draw(st.lists(st.sampled_from((0, 1, max_key - 1, max_key)), max_size=4))

    def values(self, count: int) -> list[Any] | None:
        make = VALUES[self.kind]
        first, self.number = self.number, self.number + count
        return None if make is None else [make(n) for n in range(first, first + count)]

    def arrow(self, values: list[Any] | None) -> pa.Array | None:
        return None if values is None else pa.array(values, TYPES[self.kind])

    @initialize(
        data=st.data(),
        key=st.sampled_from(sorted(KEYS)),
        kind=st.sampled_from(sorted(VALUES)),
        duplicates=st.sampled_from(("error", "first", "last")),
        threads=st.sampled_from((1, 2)),
        number=st.integers(0, 1000),
    )
    def build(self, data: st.DataObject, key: str, kind: str, duplicates: Any, threads: int, number: int) -> None:
        (self.type, self.bits), self.kind, self.threads = KEYS[key], kind, threads
        keys: list[int | None] = [*self.keys(data), *self.keys(data), None]
        if duplicates == "error":
            keys = list(dict.fromkeys(keys))
        values = self.values(len(keys))
        self.oracle = Index(keys, values, duplicates)
        arguments: dict[str, Any] = {"layout": self.layout, "device": self.device, "threads": threads}
        points = [*INDEX, "index.send", "index.search", *device_points(self.device)]
        self.injection = self.faults.enter_context(case_faults(points, f"{self.layout} {self.device} {number}"))
        arguments |= self.injection.fallback(self.device)
        column, given = pa.array(keys, self.type), self.arrow(values)
        self.ix = self.retried(lambda: mr.OrderedIndex(column, given, duplicates=duplicates, **arguments))

    def retried(self, make: Callable[[], mr.OrderedIndex]) -> mr.OrderedIndex:
        """An index whose calls are made again after an injected fault."""
        return self.injection.retried(self.injection.call(make), ("rows", "null_keys"))

    @rule(data=st.data(), mode=st.sampled_from(("auto", "sync", "async")), null=st.booleans())
    def upsert(self, data: st.DataObject, mode: str, null: bool) -> None:
        keys: list[int | None] = [*self.keys(data), *([None] if null else [])]
        self.change(keys, [], mode)

    @rule(data=st.data(), mode=st.sampled_from(("auto", "sync", "async")))
    def delete(self, data: st.DataObject, mode: str) -> None:
        self.change([], self.keys(data), mode)

    @rule(data=st.data(), mode=st.sampled_from(("auto", "sync", "async")))
    def both(self, data: st.DataObject, mode: str) -> None:
        self.change([*self.keys(data), *self.keys(data)], self.keys(data), mode)

    @rule(mode=st.sampled_from(("auto", "sync", "async")))
    def delete_nearly_all(self, mode: str) -> None:
        self.change([], list(range(6000)), mode)

    def change(self, keys: list[int | None], deletes: list[int], mode: Any) -> None:
        assert self.ix is not None
        values = self.values(len(keys))
        column = pa.array(keys, self.type)
        given = column if values is None else (column, self.arrow(values))
        self.ix.update(upsert=given, delete=pa.array(deletes, self.type), mode=mode)
        self.oracle.update(keys, values, deletes)

    @rule(data=st.data())
    def lookup(self, data: st.DataObject) -> None:
        assert self.ix is not None
        queries = [*self.keys(data), None, 2**self.bits - 1]
        found = self.ix.lookup(pa.array(queries, self.type))
        found.validate(full=True)
        assert found.to_pylist() == self.oracle.lookup(queries)

    @rule(low=st.lists(st.integers(0, 6000), min_size=1, max_size=5), span=st.sampled_from((0, 3, 500, None)))
    def range(self, low: list[int], span: int | None) -> None:
        assert self.ix is not None
        high = [2**self.bits - 1 if span is None else at + span for at in low]
        lists = self.ix.range(pa.array(low, self.type), pa.array(high, self.type))
        lists.validate(full=True)
        assert lists.to_pylist() == self.oracle.range(low, high)

    @rule()
    def save_and_open(self) -> None:
        assert self.ix is not None
        path = Path(self.folder.name) / f"index-{self.number}"
        self.ix.save(path)
        before = path.read_bytes()
        other = self.retried(lambda: mr.OrderedIndex.open(path, device=self.device, threads=self.threads))
        self.ix, old = other, self.ix
        self.lookup_all()
        del old
        self.file = (path, before)

    @precondition(lambda self: getattr(self, "file", None) is not None)
    @rule()
    def the_file_is_as_it_was(self) -> None:
        path, before = self.file
        assert path.read_bytes() == before

    def lookup_all(self) -> None:
        assert self.ix is not None
        assert self.ix.range(0, 2**self.bits - 1).to_pylist() == self.oracle.range([0], [2**self.bits - 1])

    @invariant()
    def counts_agree(self) -> None:
        if self.ix is None:
            return
        assert (len(self.ix), self.ix.stats["null_keys"]) == (len(self.oracle), self.oracle.nulls)
        self.lookup_all()
        if self.layout == "regular":
            TreeChecker(self.ix._rows.tree).check()  # type: ignore[arg-type]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_updates_keep_to_a_sorted_list(device: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regular_rows, "LARGE_SHARE", 1e9)
    monkeypatch.setattr(editor, "GROUP", 64)
    monkeypatch.setattr(update_runner, "SYNC_GROUP", 48)
    machine = type("Machine", (Machine,), {"device": device, "layout": layout})
    examples = max(CASES // 100, 12)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=14,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
