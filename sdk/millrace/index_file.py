"""Saves an ordered index to a file and maps it back into memory (`millrace.host.hbfile` is the container).

Sections: `leaves` and `nodes` as they lie in memory, so that opening copies nothing; the key type and, where values lie
apart, the values as an Arrow IPC file, which is read without a copy too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from millrace.host.errors import StateError
from millrace.host.hbfile import read_file, write_file
from millrace.host.hbtree import HBTree
from millrace.host.hbtree_layout import LAYOUTS, LayoutName, shape_of
from millrace.host.hbtree_leaves import Leaves
from millrace.host.words import KeyType
from millrace.index_rows import DUPLICATES, Rows


@dataclass(frozen=True)
class Stored:
    """What a file holds."""

    rows: Rows
    layout: LayoutName
    duplicates: str


def save(path: Path, rows: Rows, tree: HBTree, duplicates: str) -> None:
    """Write an index in place of a file."""
    kind, leaves = rows.kind, rows.leaves
    about = {
        "layout": tree.layout,
        "hybrid": tree.hybrid,
        "duplicates": duplicates,
        "size": leaves.size,
        "width": leaves.width,
        "word": leaves.word.name,
        "apart": rows.apart is not None,
        "null_keys": rows.null_keys,
        "key": [kind.name, kind.domain, kind.dtype.name, kind.ns, kind.zoned],
    }
    apart = pa.nulls(0, rows.value_type) if rows.apart is None else rows.apart
    write_file(path, about, {"leaves": leaves.data, "nodes": tree.nodes, "values": _ipc(apart)})


def _ipc(values: pa.Array) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    schema = pa.schema([pa.field("values", values.type)])
    with pa.ipc.new_file(sink, schema) as file:
        file.write_batch(pa.record_batch([values], schema=schema))
    return sink.getvalue()


def load(path: Path) -> Stored:
    """Map a file; all that it holds was checked against its checksums, so what is wrong here was written so."""
    about, sections = read_file(path)
    try:
        name, domain, dtype, ns, zoned = about["key"]
        kind = KeyType(name, domain, np.dtype(dtype), ns, zoned)
        leaves = Leaves(sections["leaves"], np.dtype(about["word"]), about["size"], about["width"])
        shape = shape_of(about["layout"], leaves.word, leaves.size, about["hybrid"], leaves.per_leaf)
        nodes = sections["nodes"].view(leaves.word)
        has_apart = bool(about["apart"])
        batch = pa.ipc.open_file(pa.py_buffer(sections["values"])).get_batch(0)
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise StateError(f"{path} holds no index that this version knows ({error}): save the index again") from error
    values = batch.column(0)
    fits = leaves.lines == shape.lines and len(nodes) == shape.node_words and about["layout"] in LAYOUTS
    apart = values if has_apart else None
    if not fits or about["duplicates"] not in DUPLICATES or (apart is not None and len(apart) != leaves.size):
        raise StateError(f"{path} holds an index whose parts do not fit together: save the index again")
    rows = Rows(leaves, kind, values.type, apart, about["null_keys"], nodes, about["hybrid"])
    return Stored(rows, about["layout"], about["duplicates"])
