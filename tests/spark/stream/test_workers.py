"""Python workers of a streaming join, without Spark: pairs in files, and fewer objects for the garbage collector."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from millrace.spark.stream import gc_freeze, pair_files
from millrace.spark.stream.packed_batches import unpack
from millrace.spark.stream.state import unpack_rows

PAIRS = pa.table({"r_id": pa.array([1, None, 3]), "s_id": ["a", "b", None]})


def spark_batch(*outputs: dict[str, object]) -> pa.RecordBatch:
    """The batch that Spark passes to the step that unpacks pairs."""
    data, paths = ([one.get(name) for one in outputs] for name in ("data", "path"))
    return pa.record_batch([pa.array(data, pa.binary()), pa.array(paths, pa.string())], ["data", "path"])


def test_pairs_are_written_to_files_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(pair_files.SPILL_DIRS, f"{tmp_path},other")
    monkeypatch.setattr(pair_files, "MAX_BYTES", 2 * PAIRS.nbytes)
    output = pair_files.PairOutput()
    outputs = [output.add(PAIRS) for _ in range(3)]
    assert [list(one) for one in outputs] == [["path"], ["path"], ["data"]]
    assert len(list(tmp_path.iterdir())) == 2
    assert pa.Table.from_batches(unpack([spark_batch(*outputs)])) == pa.concat_tables([PAIRS] * 3)
    assert not list(tmp_path.iterdir()), "each file is removed when it is opened"


@pytest.mark.parametrize("folder", [None, "missing"])
def test_without_a_folder_pairs_are_packed(folder: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if folder is None:
        monkeypatch.delenv(pair_files.SPILL_DIRS, raising=False)
    else:
        monkeypatch.setenv(pair_files.SPILL_DIRS, str(tmp_path / folder))
    outputs = pair_files.PairOutput().add(PAIRS)
    assert unpack_rows(outputs["data"]) == PAIRS


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
