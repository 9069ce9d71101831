"""Describes an index file that only workers see, for the driver: its types, its size and its first bytes."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pyarrow as pa

import millrace as mr
from millrace.spark.cluster.files import shared_file


def describe_index(path: str) -> dict[str, Any]:
    """The file's size, first bytes and the Arrow schema of key and value."""
    with closing(mr.OrderedIndex.open(path, device="cpu", threads=1)) as index:
        values = index.lookup(pa.nulls(0)).type
        schema = pa.schema([pa.field("key", index.key_type), pa.field("value", values)])
    file = shared_file(path)
    return {"size": file.size, "head": file.head, "schema": schema.serialize().to_pybytes().hex()}
