"""Bad input to `OrderedIndex` is a typed error, early; and the index keeps no memory that is not its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.ingest import memory_limits


class Tagged(pa.ExtensionType):  # type: ignore[misc]
    """An extension type as users write them: it cannot be hashed."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "tests.tagged")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: Any, data: bytes) -> Tagged:
        return cls()


def test_an_extension_type_is_no_key() -> None:
    tagged = pa.ExtensionArray.from_storage(Tagged(), pa.array([1, 2]))
    table = pa.table({"x": tagged})
    attempts: list[Any] = [
        lambda: mr.OrderedIndex(tagged),
        lambda: mr.OrderedIndex([1]).lookup(tagged),
        lambda: mr.join(table, table, on="r.x = s.x"),
        lambda: mr.join(table, table, on="r.x < s.x"),
    ]
    for attempt in attempts:
        with pytest.raises(mr.KeyTypeError, match=r"tests\.tagged"):
            attempt()


def test_python_integers_beyond_int64() -> None:
    assert mr.OrderedIndex([1, 2**63]).lookup([2**63, 2**64 - 1]).to_pylist() == [1, None]
    ix = mr.OrderedIndex([5, 3])
    assert ix.lookup([3, 2**63]).to_pylist() == [1, None]
    assert ix.lookup([-1, 5, 2**70]).to_pylist() == [None, 0, None]
    assert ix.range([0, 2**63], [2**70, 2**70]).to_pylist() == [[1, 0], []]
    assert ix.range(-(2**70), 2**64 - 1).to_pylist() == [[1, 0]]
    ix.update(delete=[2**70])
    for keys in ([-1, 2**63], [2**64], [10**400]):
        with pytest.raises(mr.ArgumentError, match="uint64"):
            mr.OrderedIndex(keys)
    with pytest.raises(mr.ArgumentError, match="no int64"):
        ix.update(upsert=[2**63])
    for bound in (10**400, -(10**400)):
        with pytest.raises(mr.ArgumentError, match="beyond"):
            ix.range(0, bound)


def test_paths_and_threads(tmp_path: Path) -> None:
    ix = mr.OrderedIndex([1])
    for path in (None, 3, "", "a\0b", b"\xff"):
        for attempt in (ix.save, mr.OrderedIndex.open):
            with pytest.raises(mr.ArgumentError, match=r"path|cannot"):
                attempt(path)  # type: ignore[arg-type]
    with pytest.raises(mr.ArgumentError, match="path"):
        ix.lookup([1], trace=5)  # type: ignore[arg-type]
    ix.save(os.fsencode(tmp_path / "bytes"))  # type: ignore[arg-type]
    for threads in (2**70, 0, "2", 1.5):
        with pytest.raises(mr.ArgumentError, match="threads"):
            mr.OrderedIndex([1], threads=threads)  # type: ignore[arg-type]
        with pytest.raises(mr.ArgumentError, match="threads"):
            mr.device("cpu", threads=threads)  # type: ignore[arg-type]


def test_too_many_keys_are_refused_before_they_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    block = pa.array(np.zeros(1 << 20, np.int32))
    many = pa.chunked_array([block] * 2049)
    with pytest.raises(mr.ArgumentError, match="2,148,532,224 rows; allowed are 2,147,483,648"):
        mr.OrderedIndex(many)
    monkeypatch.setattr(memory_limits, "memory", lambda: 1 << 20)
    with pytest.raises(mr.ArgumentError, match=r"1,048,576 keys of at least 4 bytes are 4.0 MiB.*1.0 MiB") as caught:
        mr.OrderedIndex(block)
    assert "262,144" in str(caught.value)
    with pytest.raises(mr.ArgumentError, match=r"200,000 keys of at least 8 bytes are 1.5 MiB"):
        mr.OrderedIndex(np.arange(200_000))


@pytest.mark.parametrize("layout", ["implicit", "regular"])
def test_an_index_over_slices_does_not_keep_their_parents(layout: Any) -> None:
    before = pa.total_allocated_bytes()
    parent = pa.array(["x" * 100] * 200_000)
    ix = mr.OrderedIndex(np.arange(10), parent.slice(50, 10), layout=layout)
    ix.update(upsert=(pa.array([20]), parent.slice(7, 1)))
    del parent
    assert pa.total_allocated_bytes() - before < 1 << 20
    assert ix.lookup([3, 20]).to_pylist() == ["x" * 100] * 2


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "index"
    mr.OrderedIndex(np.arange(5000)).save(path)
    data = path.read_bytes()
    for size in (0, 10, 100, 4096, len(data) - 4096, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(mr.StateError):
            mr.OrderedIndex.open(path)
    path.write_bytes(data + bytes(4096))
    with pytest.raises(mr.StateError, match="its header says"):
        mr.OrderedIndex.open(path)
