"""Python workers of a streaming join, without Spark: pairs in files, and fewer objects for the garbage collector."""

from __future__ import annotations

import errno
import gc
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import IO

import pyarrow as pa
import pytest

from millrace.spark.cluster import gc_freeze
from millrace.spark.exec.batch_bytes import DEFAULT_LIMITS
from millrace.spark.stream import pair_files
from millrace.spark.stream.packed_batches import unpacker
from millrace.spark.stream.state import unpack_rows

PAIRS = pa.table({"r_id": pa.array([1, None, 3]), "s_id": ["a", "b", None]})

WRITER = pair_files.Writer(7, 1, 20, "a-query", "a-join")
"""Batch 7, partition 1, attempt 20."""


def spark_batch(*outputs: dict[str, object]) -> pa.RecordBatch:
    """The batch that Spark passes to the step that unpacks pairs."""
    data, paths = ([one.get(name) for one in outputs] for name in ("data", "path"))
    return pa.record_batch([pa.array(data, pa.binary()), pa.array(paths, pa.string())], ["data", "path"])


def test_pairs_are_written_to_files_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(pair_files.SPILL_DIRS, f"{tmp_path},other")
    monkeypatch.setattr(pair_files, "MAX_BYTES", 2 * PAIRS.nbytes)
    output = pair_files.PairOutput(WRITER)
    outputs = [output.add(PAIRS) for _ in range(3)]
    assert [list(one) for one in outputs] == [["path"], ["path"], ["data"]]
    assert len(list(tmp_path.iterdir())) == 2
    assert pa.Table.from_batches(unpacker(DEFAULT_LIMITS)([spark_batch(*outputs)])) == pa.concat_tables([PAIRS] * 3)
    assert not list(tmp_path.iterdir()), "each file is removed when it is opened"


@pytest.mark.parametrize("folder", [None, "missing"])
def test_without_a_folder_pairs_are_packed(folder: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if folder is None:
        monkeypatch.delenv(pair_files.SPILL_DIRS, raising=False)
    else:
        monkeypatch.setenv(pair_files.SPILL_DIRS, str(tmp_path / folder))
    outputs = pair_files.PairOutput(WRITER).add(PAIRS)
    assert unpack_rows(outputs["data"]) == PAIRS


def test_an_attempt_removes_what_its_predecessors_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(pair_files.SPILL_DIRS, str(tmp_path))
    died = {
        "the attempt before": replace(WRITER, attempt=19),
        "an earlier batch": replace(WRITER, batch=6, partition=3, operator="another-join"),
    }
    alive = {
        "this attempt": WRITER,
        "another partition": replace(WRITER, partition=2, attempt=19),
        "another join": replace(WRITER, operator="another-join"),
        "another query": replace(WRITER, query="another-query", batch=1),
    }
    paths = {name: pair_files.PairOutput(one).add(PAIRS)["path"] for name, one in (died | alive).items()}
    (tmp_path / "millrace-pairs-of-a-user").touch()
    pair_files.remove_leftovers(WRITER)
    assert {name for name, path in paths.items() if Path(str(path)).exists()} == set(alive)
    old = time.time() - pair_files.MAX_AGE_SECONDS - 1
    os.utime(str(paths["another query"]), (old, old))
    pair_files.remove_leftovers(WRITER)
    assert not Path(str(paths["another query"])).exists(), "its query does not run any more"
    assert len(list(tmp_path.iterdir())) == len(alive), "and the user's file"


def test_a_file_that_cannot_be_written_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(pairs: pa.Table, sink: IO[bytes]) -> None:
        sink.write(b"part")
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setenv(pair_files.SPILL_DIRS, str(tmp_path))
    monkeypatch.setattr(pair_files, "write_rows", full)
    assert pair_files._write_file(PAIRS, WRITER) is None
    assert not list(tmp_path.iterdir())


def test_loaded_objects_are_frozen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc_freeze, "_modules", 0)
    gc.unfreeze()
    try:
        gc_freeze.freeze_loaded_objects()
        frozen = gc.get_freeze_count()
        assert frozen > 10_000
        kept: list[list[int]] = [[] for _ in range(100)]
        gc_freeze.freeze_loaded_objects()
        assert gc.get_freeze_count() <= frozen
        monkeypatch.setitem(sys.modules, "tests.one_more", sys)
        gc_freeze.freeze_loaded_objects()
        assert gc.get_freeze_count() > frozen, f"and the {len(kept)} lists with it"
    finally:
        gc.unfreeze()
