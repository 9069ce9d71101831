"""Saved indexes: they are restored exactly; a file that is truncated, altered or newer raises an error."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.hbtree import file
from millrace.host.hbtree import fragments as hf
from millrace.host.hbtree.layout import LAYOUTS, shape_of

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


def test_the_old_file_stays_until_the_new_one_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "index"
    make().save(path)
    mapped = mr.OrderedIndex.open(path)

    def fail(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(file, "_write", fail)
        with pytest.raises(mr.ArgumentError, match="No space left on device; an existing file is unchanged"):
            make(VALUES["int64"]).save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["index"]
    make(VALUES["int64"]).save(path)
    assert mapped.lookup([3]).to_pylist() != mr.OrderedIndex.open(path).lookup([3]).to_pylist()


def test_a_file_cut_off_anywhere_is_an_error(tmp_path: Path) -> None:
    make(VALUES["string"]).save(tmp_path / "index")
    contents = (tmp_path / "index").read_bytes()
    for length in [0, 1, 7, 8, 47, 48, 100, 4095, 4096, 5000, len(contents) // 2, len(contents) - 4096]:
        (tmp_path / "cut").write_bytes(contents[:length])
        with pytest.raises(mr.StateError, match=r"cut off|too few"):
            mr.OrderedIndex.open(tmp_path / "cut")


def test_a_file_altered_anywhere_is_an_error(tmp_path: Path) -> None:
    make(VALUES["string"]).save(tmp_path / "index")
    contents = (tmp_path / "index").read_bytes()
    rng = np.random.default_rng(2)
    (length,) = struct.unpack_from("<I", contents, 12)
    entries = json.loads(contents[48 : 48 + length])["sections"].values()
    begin = -(-(48 + length) // 4096) * 4096
    ends = [(begin + at, begin + at + size) for at, size, _ in entries] + [(0, 48 + length)]
    for first, last in ends:
        for offset in rng.integers(first, last, 12):
            altered = bytearray(contents)
            altered[offset] ^= 1 << int(rng.integers(8))
            (tmp_path / "altered").write_bytes(altered)
            with pytest.raises(mr.StateError):
                mr.OrderedIndex.open(tmp_path / "altered")


def test_a_newer_file_says_so(tmp_path: Path) -> None:
    make().save(tmp_path / "index")
    newer = bytearray((tmp_path / "index").read_bytes())
    newer[8:12] = struct.pack("<I", file.VERSION + 1)
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
    for folder in ("/", ".", tmp_path):
        with pytest.raises(mr.ArgumentError, match="cannot save"):
            make().save(folder)


def test_a_name_may_be_as_long_as_the_system_allows(tmp_path: Path) -> None:
    longest = tmp_path / ("é" * 127 + "x")  # 255 bytes
    make().save(longest)
    assert len(mr.OrderedIndex.open(longest)) == len(make())
    for path in (tmp_path / ("x" * 256), tmp_path / ("x/" * 4000)):
        with pytest.raises(mr.ArgumentError, match=r"cannot save to .*too long"):
            make().save(path)
    assert list(tmp_path.iterdir()) == [longest]


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
        "next_row": 10**6,
        "numbered": True,
        "equals": False,
        "key": ["int64", "int", "int64", 1, False],
    }
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, pa.schema([("values", pa.int64())])) as writer:
        writer.write_batch(pa.record_batch([pa.array([], pa.int64())], names=["values"]))
    sections = {"leaves": bytes(64), "nodes": bytes(64), "values": sink.getvalue()}
    file.write_file(tmp_path / "index", about, sections)
    with pytest.raises(mr.StateError, match="do not fit together"):
        mr.OrderedIndex.open(tmp_path / "index")
    file.write_file(tmp_path / "index", {}, sections)
    with pytest.raises(mr.StateError, match="holds no index that this version knows"):
        mr.OrderedIndex.open(tmp_path / "index")


# Files with right checksums that no index wrote.

Harm = Callable[[dict[str, Any], dict[str, Any]], object]


def altered(path: Path, harm: Harm) -> None:
    """Change what a file holds, and write it again with checksums that are right."""
    about, sections = file.read_file(path)
    held = {name: data.copy() for name, data in sections.items()}
    harm(about, held)
    file.write_file(path, about, held)


def ipc(values: pa.Array) -> np.ndarray:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, pa.schema([("values", values.type)])) as writer:
        writer.write_batch(pa.record_batch([values], names=["values"]))
    return np.frombuffer(sink.getvalue(), np.uint8)


def put(section: str, kind: Any, offset: Any, value: Any) -> Harm:
    """Other numbers in a section; fragments are rows of four."""

    def harm(about: dict[str, Any], held: dict[str, Any]) -> None:
        numbers = held[section].view(kind)
        (numbers.reshape(-1, 4) if "fragments" in section else numbers)[offset] = value

    return harm


def number(entry: int, value: Any) -> Harm:
    """Another number in the table of a regular tree."""
    return lambda about, held: about["numbers"].__setitem__(entry - hf.Pools.WIDTH, value)


def header(**other: Any) -> Harm:
    """Another entry in the header."""
    return lambda about, held: about.update(other)


def narrow(about: dict[str, Any], held: dict[str, Any]) -> None:
    """Values of one byte, in lines to match."""
    about["width"] = 1
    shape = shape_of("implicit", np.dtype(np.uint64), about["size"], about["hybrid"], 8)
    held |= {"leaves": np.zeros(shape.lines * 72, np.uint8), "nodes": np.zeros(shape.node_words * 8, np.uint8)}


def swapped(about: dict[str, Any], held: dict[str, Any]) -> None:
    """Two words out of order."""
    words = held["leaves"].view(np.uint64)
    words[[0, 1]] = words[[1, 0]]


ANYWHERE: dict[str, Harm] = {
    "row numbers that are none": header(next_row=-1),
    "row numbers too large": header(next_row=1 << 63),
    "half a row": header(null_keys=0.5),
    "no truth": header(apart=0),
    "another word": header(word="uint32"),
    "no word": header(word="float64"),
    "a key type that is none": header(key=["int64", "int", "float64", 1, False]),
    "an unknown key type": header(key=["string", "int", "int64", 1, False]),
    "a wide value": lambda about, held: held.update(values=ipc(pa.array([], pa.binary(64)))),
    "a narrow value": lambda about, held: held.update(values=ipc(pa.array([], pa.int32()))),
}
IMPLICIT: dict[str, Harm] = {
    "nodes": put("nodes", np.uint8, slice(None), 0),
    "a separator": put("nodes", np.uint64, 3, 5),
    "words out of order": swapped,
    "a last line not filled up": put("leaves", np.uint64, -8 + 3, 7),
    "a width of 1": narrow,
    "a width of 4": header(width=4),
    "a width of 3": header(width=3),
    "a size of its own": header(size=10**30),
    "a size below 0": header(size=-1),
    "half a size": header(size=99_999.0),
}
REGULAR: dict[str, Harm] = {
    "levels": number(hf.Pools.LEVELS, 12),
    "endless levels": number(hf.Pools.LEVELS, 1 << 60),
    "one level less": number(hf.Pools.LEVELS, 1),
    "a number beyond 64 bits": number(hf.Pools.USED_UPPERS, 1 << 70),
    "leaves beyond memory": number(hf.Pools.USED_LEAVES, 1 << 50),
    "a fraction": number(hf.Pools.SIZE, 0.5),
    "a stride": number(hf.Pools.STRIDE, 72),
    "too many words": number(hf.Pools.SIZE, 100_001),
    "a parent far away": put("leaf_fragments", np.int32, (slice(None), hf.PARENT), 1 << 30),
    "another parent": put("leaf_fragments", np.int32, (7, hf.PARENT), 3),
    "a circle of leaves": put("leaf_fragments", np.int32, (-1, hf.NEXT), 0),
    "a circle backwards": put("leaf_fragments", np.int32, (0, hf.BEFORE), 9),
    "a leaf passed over": put("leaf_fragments", np.int32, (4, hf.NEXT), 6),
    "words of a leaf": put("leaf_fragments", np.int32, ([2, 3], hf.COUNT), [191, 193]),
    "a leaf that is free": put("leaf_fragments", np.int32, (5, hf.COUNT), -1),
    "children": put("upper_fragments", np.int32, (0, hf.COUNT), 65),
    "no children": put("upper_fragments", np.int32, (1, hf.COUNT), 0),
    "fewer children": put("upper_fragments", np.int32, (1, hf.COUNT), 60),
    "a child twice": put("uppers", np.uint64, 8 + 64 + 1, 1),
    "last nodes": put("lasts", np.uint8, slice(None), 0),
    "an index line": put("lasts", np.uint64, 0, 0),
    "a last separator": put("lasts", np.uint64, [7, 8 + 63], 1 << 63),
    "separators out of order": put("lasts", np.uint64, [8, 9], [1 << 62, 1 << 61]),
    "a separator below its words": put("lasts", np.uint64, 8, 0),
    "words out of order": swapped,
}
CASES = [
    *((layout, name, harm) for layout in LAYOUTS for name, harm in ANYWHERE.items()),
    *(("implicit", name, harm) for name, harm in IMPLICIT.items()),
    *(("regular", name, harm) for name, harm in REGULAR.items()),
]


@pytest.mark.parametrize(("layout", "harm"), [(layout, harm) for layout, _, harm in CASES], ids=[c[1] for c in CASES])
def test_a_file_that_no_index_wrote_is_an_error(tmp_path: Path, layout: Any, harm: Harm) -> None:
    path = tmp_path / "index"
    mr.OrderedIndex(np.arange(99_999) * 3, np.arange(99_999), layout=layout, device="cpu").save(path)
    altered(path, lambda about, held: None)
    assert len(mr.OrderedIndex.open(path, device="cpu")) == 99_999
    altered(path, harm)
    with pytest.raises(mr.StateError):
        mr.OrderedIndex.open(path, device="cpu")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_that_are_not_there(tmp_path: Path, layout: Any) -> None:
    """Separate values, fewer than rows refer to; and text with offsets out of bounds."""
    path, values = tmp_path / "index", pa.array([str(i) for i in range(1000)])
    mr.OrderedIndex(np.arange(1000), values, layout=layout, device="cpu").save(path)
    ends = np.zeros(1001, np.int32)
    ends[500] = 1 << 30
    bad = pa.Array.from_buffers(pa.string(), 1000, [None, pa.py_buffer(ends), pa.py_buffer(b"")])
    for other in (values[:999], bad):
        altered(path, lambda about, held, other=other: held.update(values=ipc(other)))  # type: ignore[misc]
        with pytest.raises(mr.StateError):
            mr.OrderedIndex.open(path, device="cpu")


def write_header(path: Path, text: bytes) -> None:
    """A header with the right checksum."""
    head = struct.pack("<8sII32s", file.MAGIC, file.VERSION, len(text), hashlib.sha256(text).digest())
    path.write_bytes((head + text).ljust(9000, b"\0"))


@pytest.mark.parametrize("entry", [[-4096, 64], [1, 64], [0, -1], [0.0, 64], ["0", 64], [0]])
def test_sections_at_invalid_offsets(tmp_path: Path, entry: list[Any]) -> None:
    write_header(tmp_path / "index", json.dumps({"about": {}, "sections": {"leaves": [*entry, ""]}}).encode())
    with pytest.raises(mr.StateError, match=r"sections at invalid offsets|cannot read"):
        mr.OrderedIndex.open(tmp_path / "index")


@pytest.mark.parametrize("text", [b"no JSON", b"[]", b"{}", b'{"about": 1, "sections": {}}', b"[" * 100_000])
def test_headers_that_say_nothing(tmp_path: Path, text: bytes) -> None:
    write_header(tmp_path / "index", text)
    with pytest.raises(mr.StateError, match="a header that this version cannot read"):
        mr.OrderedIndex.open(tmp_path / "index")


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("values", [np.int64, np.int16])
def test_trees_that_changed_much_come_back(tmp_path: Path, kind: Any, values: Any) -> None:
    """With free nodes, merged ones, equal words and the largest one: a sound tree is never refused."""
    rng, path = np.random.default_rng(6), tmp_path / "index"
    most = np.iinfo(kind).max
    keys = np.concatenate([rng.integers(0, 1 << 30, 60_000), np.full(900, 77), [most, most]]).astype(kind)
    ix = mr.OrderedIndex(keys, keys.astype(values), layout="regular", duplicates="first", device="cpu")
    free = 0
    for step in range(12):
        first = int(rng.integers(0, 1 << 29))
        more = rng.integers(first, first + (1 << 22), 9000).astype(kind)
        gone = keys[(keys >= first) & (keys < first + (1 << 27))]
        ix.update(upsert=(more, more.astype(values)), delete=gone if step % 2 else None)
        free += int(ix._rows.tree.table[hf.Pools.SPARE_LEAVES])  # type: ignore[union-attr]
        ix.save(path)
        again = mr.OrderedIndex.open(path, device="cpu")
        assert again.range(0, most).equals(ix.range(0, most))
    assert free
    again.update(upsert=(keys, keys.astype(values)))
    assert again.lookup(keys).to_pylist() == keys.astype(values).tolist()
