"""What Python workers of a streaming join do among themselves, without Spark: pairs in files, less garbage to find."""

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


def carried(*told: dict[str, object]) -> pa.RecordBatch:
    """What Spark brings to the step that opens parcels."""
    data, paths = ([one.get(name) for one in told] for name in ("data", "path"))
    return pa.record_batch([pa.array(data, pa.binary()), pa.array(paths, pa.string())], ["data", "path"])


def test_pairs_go_by_files_as_long_as_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(pair_files.SPILL, f"{tmp_path},elsewhere")
    monkeypatch.setattr(pair_files, "MOST_BYTES", 2 * PAIRS.nbytes)
    place = pair_files.Handing()
    told = [place.give(PAIRS) for _ in range(3)]
    assert [list(one) for one in told] == [["path"], ["path"], ["data"]]
    assert len(list(tmp_path.iterdir())) == 2
    assert pa.Table.from_batches(unpack([carried(*told)])) == pa.concat_tables([PAIRS] * 3)
    assert not list(tmp_path.iterdir()), "each is removed as it is opened"


@pytest.mark.parametrize("folder", [None, "missing"])
def test_without_a_folder_they_go_in_parcels(
    folder: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if folder is None:
        monkeypatch.delenv(pair_files.SPILL, raising=False)
    else:
        monkeypatch.setenv(pair_files.SPILL, str(tmp_path / folder))
    told = pair_files.Handing().give(PAIRS)
    assert unpack_rows(told["data"]) == PAIRS


def test_what_is_loaded_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc_freeze, "_modules", 0)
    gc.unfreeze()
    try:
        gc_freeze.settle()
        frozen = gc.get_freeze_count()
        assert frozen > 10_000
        kept: list[list[int]] = [[] for _ in range(100)]
        gc_freeze.settle()
        assert gc.get_freeze_count() <= frozen
        monkeypatch.setitem(sys.modules, "tests.one_more", sys)
        gc_freeze.settle()
        assert gc.get_freeze_count() > frozen, f"and the {len(kept)} lists with it"
    finally:
        gc.unfreeze()
