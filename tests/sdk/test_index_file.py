"""Saved indexes: they come back as they were, and a file that is cut off, altered or newer says so."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host import hbfile
from millrace.host.hbtree_layout import LAYOUTS

VALUES = {
    "rows": None,
    "int64": pa.array(range(1000, 2000)),
    "float32": pa.array(np.arange(1000, dtype=np.float32)),
    "string": pa.array([f"v{i}" if i % 7 else None for i in range(1000)]),
    "struct": pa.array([{"a": i} for i in range(1000)]),
}


def make(values: Any = None, **arguments: Any) -> mr.OrderedIndex:
    keys = np.random.default_rng(1).permutation(1000).astype(np.int32)
    return mr.OrderedIndex(keys, values, **arguments)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("values", list(VALUES))
@pytest.mark.parametrize("devices", [("cpu", "cpu"), ("cpu", "opencl:0"), ("opencl:0", "cpu")])
def test_an_index_comes_back(tmp_path: Path, layout: str, values: str, devices: tuple[str, str]) -> None:
    ix = make(VALUES[values], layout=layout, device=devices[0])
    ix.save(tmp_path / "index")
    again = mr.OrderedIndex.open(tmp_path / "index", device=devices[1])
    queries = pa.array([5, -1, 999, None, 0], pa.int32())
    assert again.lookup(queries).equals(ix.lookup(queries))
    assert again.range([0, 990], [3, 2000]).equals(ix.range([0, 990], [3, 2000]))
    assert (len(again), again.stats["layout"]) == (1000, layout)
    again.save(str(tmp_path / "copy"))
    assert mr.OrderedIndex.open(str(tmp_path / "copy")).lookup(queries).equals(ix.lookup(queries))


def test_duplicates_nulls_types_and_emptiness_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "index"
    mr.OrderedIndex(pa.array([1, 1, None], pa.timestamp("us", "UTC")), duplicates="last").save(path)
    again = mr.OrderedIndex.open(path)
    assert again.lookup(pa.array([1], pa.timestamp("us", "UTC"))).to_pylist() == [1]
    assert again.stats["null_keys"] == 1
    with pytest.raises(mr.KeyTypeError):
        again.lookup(np.array([1]))
    mr.OrderedIndex(pa.array([], pa.float32()), pa.array([], pa.string())).save(path)
    empty = mr.OrderedIndex.open(path)
    assert empty.lookup(np.array([1.0])).equals(pa.array([None], pa.string()))


def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "index"
    make().save(path)
    mapped = mr.OrderedIndex.open(path)

    def fail(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(hbfile, "_write", fail)
        with pytest.raises(mr.ArgumentError, match="No space left on device; what was there is unchanged"):
            make(VALUES["int64"]).save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["index"]
    make(VALUES["int64"]).save(path)
    assert mapped.lookup([3]).to_pylist() != mr.OrderedIndex.open(path).lookup([3]).to_pylist()


def test_a_file_cut_off_anywhere_is_an_error(tmp_path: Path) -> None:
    make(VALUES["string"]).save(tmp_path / "index")
    whole = (tmp_path / "index").read_bytes()
    for length in [0, 1, 7, 8, 47, 48, 100, 4095, 4096, 5000, len(whole) // 2, len(whole) - 4096]:
        (tmp_path / "cut").write_bytes(whole[:length])
        with pytest.raises(mr.StateError, match=r"cut off|too few"):
            mr.OrderedIndex.open(tmp_path / "cut")


def test_a_file_altered_anywhere_is_an_error(tmp_path: Path) -> None:
    make(VALUES["string"]).save(tmp_path / "index")
    whole = (tmp_path / "index").read_bytes()
    rng = np.random.default_rng(2)
    (length,) = struct.unpack_from("<I", whole, 12)
    places = json.loads(whole[48 : 48 + length])["sections"].values()
    begin = -(-(48 + length) // 4096) * 4096
    ends = [(begin + at, begin + at + size) for at, size, _ in places] + [(0, 48 + length)]
    for first, last in ends:
        for place in rng.integers(first, last, 12):
            altered = bytearray(whole)
            altered[place] ^= 1 << int(rng.integers(8))
            (tmp_path / "altered").write_bytes(altered)
            with pytest.raises(mr.StateError):
                mr.OrderedIndex.open(tmp_path / "altered")


def test_a_newer_file_says_so(tmp_path: Path) -> None:
    make().save(tmp_path / "index")
    newer = bytearray((tmp_path / "index").read_bytes())
    newer[8:12] = struct.pack("<I", hbfile.VERSION + 1)
    (tmp_path / "index").write_bytes(newer)
    with pytest.raises(mr.StateError, match=r"format version 3, written by a newer millrace; this one reads version 2"):
        mr.OrderedIndex.open(tmp_path / "index")


def test_no_index_and_no_file(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(bytes(9999))
    with pytest.raises(mr.StateError, match="is no saved index"):
        mr.OrderedIndex.open(tmp_path / "other")
    with pytest.raises(mr.ArgumentError, match="No such file"):
        mr.OrderedIndex.open(tmp_path / "missing")
    with pytest.raises(mr.ArgumentError, match="cannot save"):
        make().save(tmp_path / "missing" / "index")


def test_parts_that_do_not_fit_together(tmp_path: Path) -> None:
    """Guards: a file with good checksums, made by something else, must not be searched out of bounds."""
    about = {
        "layout": "implicit",
        "hybrid": False,
        "duplicates": "error",
        "size": 10**6,
        "width": 0,
        "word": "uint64",
        "apart": False,
        "null_keys": 0,
        "key": ["int64", "int", "int64", 1, False],
    }
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, pa.schema([("values", pa.int64())])) as file:
        file.write_batch(pa.record_batch([pa.array([], pa.int64())], names=["values"]))
    sections = {"leaves": bytes(64), "nodes": bytes(64), "values": sink.getvalue()}
    hbfile.write_file(tmp_path / "index", about, sections)
    with pytest.raises(mr.StateError, match="do not fit together"):
        mr.OrderedIndex.open(tmp_path / "index")
    hbfile.write_file(tmp_path / "index", {}, sections)
    with pytest.raises(mr.StateError, match="holds no index that this version knows"):
        mr.OrderedIndex.open(tmp_path / "index")
