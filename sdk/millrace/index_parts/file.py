"""Saves an ordered index to a file and maps it into memory again (`hbtree/file.py` is the container).

Sections have the format of the memory, so that opening copies nothing: `leaves` and `nodes` of the implicit layout; the
used part of every pool and `top` of the regular one. Values that are not inline are an Arrow IPC file, which is also
read without a copy. An opened index never writes to its file: the regular layout is copied before its first change.
Checksums show that a file was not altered. This module checks that the file contains a valid index, which can be
searched within its memory. (Not in the paper.) Limit: files of other versions are refused.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from millrace.host.base.errors import KeyTypeError, StateError
from millrace.host.base.types import Array
from millrace.host.base.words import KeyType, key_type
from millrace.host.hbtree import fragments as hf
from millrace.host.hbtree.build import build_nodes
from millrace.host.hbtree.file import pack, read_file, unpack, write_file
from millrace.host.hbtree.layout import LAYOUTS, MAX_KEYS, LayoutName, shape_of
from millrace.host.hbtree.leaves import INLINE_WIDTHS, Leaves
from millrace.host.hbtree.pools import Pools
from millrace.host.hbtree.regular import RegularTree
from millrace.host.hbtree.tree import helpers
from millrace.host.hbtree.validate import MAX_LEVELS, is_sound
from millrace.host.runtime import pool
from millrace.index_parts.implicit_rows import ImplicitRows
from millrace.index_parts.regular_rows import ROW_NUMBER, RegularRows
from millrace.index_parts.rows import Rows
from millrace.index_parts.value_store import ValueStore
from millrace.ingest.choices import DUPLICATES

_POOLS = tuple(field.name for field in fields(Pools))
_UNSAVED = ("changed_lasts", "changed_uppers")


@dataclass(frozen=True)
class Stored:
    """The contents of a file."""

    about: dict[str, Any]
    sections: dict[str, Array]
    kind: KeyType
    values: pa.Array

    @property
    def layout(self) -> LayoutName:
        """Layout of the tree."""
        layout: LayoutName = self.about["layout"]
        return layout

    @property
    def duplicates(self) -> str:
        """The `duplicates` argument of the index."""
        return str(self.about["duplicates"])

    def rows(self, hybrid: bool, threads: int) -> ImplicitRows | RegularRows:
        """The rows; `hybrid`: devices can walk the tree too."""
        return _implicit_rows(self, hybrid, threads) if self.layout == "implicit" else _regular_rows(self, threads)


def save(path: Path, rows: ImplicitRows | RegularRows) -> None:
    """Write an index to a file, atomically."""
    write_file(path, *_contents(rows))


def dump(rows: ImplicitRows | RegularRows) -> bytes:
    """The bytes of the file that `save` writes."""
    return pack(*_contents(rows))


def _contents(rows: ImplicitRows | RegularRows) -> tuple[dict[str, Any], dict[str, Any]]:
    """The description and the sections of a file."""
    kind = rows.kind
    about = {
        "duplicates": rows.duplicates,
        "null_keys": rows.null_keys,
        "next_row": rows.next_row,
        "numbered": rows.wanted_type is None,
        "key": [kind.name, kind.domain, kind.dtype.name, kind.ns, kind.zoned],
    }
    more, sections, separate_values = (
        _implicit_sections(rows) if isinstance(rows, ImplicitRows) else _regular_sections(rows)
    )
    values = pa.nulls(0, rows.value_type) if separate_values is None else separate_values
    return about | more | {"apart": separate_values is not None}, {**sections, "values": _ipc(values)}


_Sections = tuple[dict[str, Any], dict[str, Array], pa.Array | None]


def _implicit_sections(rows: ImplicitRows) -> _Sections:
    leaves, tree = rows.rows.leaves, rows.tree
    about = {
        "layout": "implicit",
        "hybrid": tree.hybrid,
        "size": leaves.size,
        "width": leaves.width,
        "word": leaves.word.name,
        "equals": rows.rows.equals,
    }
    return about, {"leaves": leaves.data, "nodes": tree.nodes}, rows.rows.separate_values


def _regular_sections(rows: RegularRows) -> _Sections:
    tree = rows.tree
    about = {"layout": "regular", "word": tree.word.name, "numbers": tree.table[hf.Pools.WIDTH :].tolist()}
    sections = {name: getattr(tree.pools, name)[:size] for name, size in zip(_POOLS, tree.used_sizes(), strict=True)}
    kept = {name: array for name, array in sections.items() if name not in _UNSAVED}
    return about, {**kept, "top": tree.top}, None if rows.store is None else rows.store.combined()


def _ipc(values: pa.Array) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    schema = pa.schema([pa.field("values", values.type)])
    with pa.ipc.new_file(sink, schema) as file:
        file.write_batch(pa.record_batch([values], schema=schema))
    return sink.getvalue()


def load(path: Path) -> Stored:
    """Map a file and check its contents."""
    return _checked(str(path), *read_file(path))


def parse(data: bytes) -> Stored:
    """What `dump` made, as `load` reads a file: aligned, and never written to."""
    aligned = pa.allocate_buffer(len(data))
    np.frombuffer(aligned, np.uint8)[:] = np.frombuffer(data, np.uint8)
    return _checked("the stored index", *unpack(memoryview(aligned).toreadonly(), "the stored index"))


def _checked(path: str, about: dict[str, Any], sections: dict[str, Array]) -> Stored:
    """Check the contents; the checksums are valid, so errors here were written into it."""
    try:
        _check_types(about)
        name, domain, dtype, ns, zoned = about["key"]
        kind = KeyType(name, domain, np.dtype(dtype), ns, zoned)
        batch = pa.ipc.open_file(pa.py_buffer(sections["values"])).get_batch(0)
        stored = Stored(about, sections, kind, batch.column(0))
        stored.values.validate(full=True)
        fits = about["layout"] in LAYOUTS and about["duplicates"] in DUPLICATES and _is_key_type(kind)
        fits = fits and np.dtype(about["word"]) == kind.word and _counts_fit(stored)
        fits = fits and (_implicit_fits(stored) if about["layout"] == "implicit" else _regular_fits(stored))
    except _FOREIGN as error:
        raise StateError(f"{path} holds no index that this version knows ({error}): save the index again") from error
    if not fits:
        raise StateError(f"{path} holds an index whose parts do not fit together: save the index again")
    return stored


_FOREIGN = (
    *(LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError, OSError, RecursionError),
    *(pa.ArrowException, KeyTypeError),
)
"""What NumPy, Arrow and the checks raise for a file in which something is missing or has another type."""
_TYPES = {"null_keys": int, "next_row": int, "size": int, "width": int} | dict.fromkeys(
    ("numbered", "apart", "hybrid", "equals"), bool
)


def _check_types(about: dict[str, Any]) -> None:
    """Check that numbers are numbers and flags are flags: JSON also allows similar values of other types."""
    implicit = ("size", "width", "hybrid", "equals")
    for name, kind in _TYPES.items():
        if (name in about or name not in implicit or about["layout"] == "implicit") and type(about[name]) is not kind:
            raise TypeError(f"{name} is {about[name]!r}")


def _is_key_type(kind: KeyType) -> bool:
    """Whether `key_type` can return it."""
    if kind.name.startswith("timestamp["):
        unit = kind.name.removeprefix("timestamp[").rstrip("]").partition(",")[0]
        return kind == replace(key_type("key", pa.timestamp(unit, "UTC" if kind.zoned else None)), name=kind.name)
    return kind == key_type("key", pa.type_for_alias(kind.name))


def _counts_fit(stored: Stored) -> bool:
    """Whether row numbers are valid, and future ones fit their type."""
    about = stored.about
    fits = 0 <= about["null_keys"] <= about["next_row"] < 1 << 62
    return fits and (not about["numbered"] or stored.values.type == pa.int64())


def _can_be_inline(kind: pa.DataType, width: int) -> bool:
    """Whether values of a type can be stored inline with this width."""
    return width in INLINE_WIDTHS and pa.types.is_primitive(kind) and kind.bit_width == 8 * width


# The implicit layout.


def _leaves(stored: Stored) -> Leaves:
    about = stored.about
    return Leaves(stored.sections["leaves"], np.dtype(about["word"]), about["size"], about["width"])


def _implicit_fits(stored: Stored) -> bool:
    leaves, separate_values, kind = _leaves(stored), stored.about["apart"], stored.values.type
    if not 0 <= leaves.size <= MAX_KEYS:
        return False
    if (
        leaves.width
        if separate_values
        else not (_can_be_inline(kind, leaves.width) or (leaves.width == 0 and kind == pa.int64()))
    ):
        return False
    shape = shape_of("implicit", leaves.word, leaves.size, stored.about["hybrid"], leaves.per_leaf)
    nodes = stored.sections["nodes"].view(leaves.word)
    if len(leaves.data) != shape.lines * leaves.stride or len(nodes) != shape.node_words:
        return False
    if (separate_values and len(stored.values) != leaves.size) or not _words_are_sorted(leaves):
        return False
    with helpers(pool.cores(), leaves.size) as team:
        return np.array_equal(build_nodes(shape, leaves, team), nodes)


_CHUNK = 1 << 14
"""Lines whose words are compared together: they stay in the cache."""


def _words_are_sorted(leaves: Leaves) -> bool:
    """Whether words are in ascending order, and the padding of the last line is the largest word."""
    lines = leaves.data.reshape(leaves.lines, leaves.stride)[:, : leaves.offset].view(leaves.word)
    for first in range(0, leaves.lines, _CHUNK):
        words = lines[max(first - 1, 0) : first + _CHUNK]
        if (words[:, 1:] < words[:, :-1]).any() or (words[1:, 0] < words[:-1, -1]).any():
            return False
    filled = leaves.size - (leaves.lines - 1) * leaves.per_leaf
    return bool((lines[-1, filled:] == np.iinfo(leaves.word).max).all())


def _implicit_rows(stored: Stored, hybrid: bool, threads: int) -> ImplicitRows:
    about, leaves = stored.about, _leaves(stored)
    separate_values = stored.values if about["apart"] else None
    counts = about["null_keys"], about["numbered"], about["next_row"], about["equals"]
    rows = Rows(leaves, stored.kind, stored.values.type, separate_values, *counts)
    # The file has the nodes for one fan-out; for another one they are built from the leaves.
    nodes = stored.sections["nodes"].view(leaves.word) if about["hybrid"] is hybrid else None
    return ImplicitRows(rows, stored.duplicates, hybrid, threads, nodes)


# The regular layout.


def _tree(stored: Stored, threads: int) -> RegularTree:
    word, numbers = np.dtype(stored.about["word"]), np.array(stored.about["numbers"], np.int64)
    used = {hf.Pools.MAX_LEAVES: hf.Pools.USED_LEAVES, hf.Pools.MAX_UPPERS: hf.Pools.USED_UPPERS}
    for most, count in used.items():
        numbers[most - hf.Pools.WIDTH] = numbers[count - hf.Pools.WIDTH]
    sections = stored.sections
    kinds = [np.uint8, word, word, np.int32, np.int32, np.int32, np.int32]
    mapped = [sections[name].view(kind) for name, kind in zip(_POOLS, kinds, strict=False)]
    flags = [np.zeros(int(numbers[count - hf.Pools.WIDTH]), np.uint8) for count in used.values()]
    top = sections["top"].view(f"u{numbers[0]}")
    return RegularTree(word, Pools(*mapped, *flags), numbers, top, threads)


def _regular_fits(stored: Stored) -> bool:
    numbers, separate_values = stored.about["numbers"], stored.about["apart"]
    if len(numbers) != len(hf.Pools) - hf.Pools.WIDTH or any(type(number) is not int for number in numbers):
        return False
    if (
        not (numbers[0] == ROW_NUMBER if separate_values else _can_be_inline(stored.values.type, numbers[0]))
        or min(numbers) < 0
    ):
        return False
    # Checked before memory is allocated: a tree cannot have more nodes than its file has bytes.
    fields = (hf.Pools.USED_LEAVES, hf.Pools.USED_UPPERS, hf.Pools.LEVELS)
    leaves, uppers, levels = (numbers[field - hf.Pools.WIDTH] for field in fields)
    if leaves < 1 or max(leaves, uppers) > len(stored.sections["lasts"]) or levels > MAX_LEVELS:
        return False
    tree = _tree(stored, 1)
    sizes = dict(zip(_POOLS, tree.used_sizes(), strict=True))
    fits = all(len(getattr(tree.pools, name)) == sizes[name] for name in _POOLS if name not in _UNSAVED)
    return fits and is_sound(tree, len(stored.values) if separate_values else None)


def _regular_rows(stored: Stored, threads: int) -> RegularRows:
    about, kind = stored.about, stored.values.type
    store = ValueStore([stored.values], kind) if about["apart"] else None
    counts = about["numbered"], about["null_keys"], about["next_row"]
    return RegularRows(_tree(stored, threads), store, stored.kind, kind, *counts, stored.duplicates)
