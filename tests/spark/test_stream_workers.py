"""What Python workers of a streaming join do among themselves, without Spark: pairs in files, less garbage to find."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from millrace.spark import handing, settling
from millrace.spark.packing import unpack
from millrace.spark.stream_state import unpack_rows

PAIRS = pa.table({"r_id": pa.array([1, None, 3]), "s_id": ["a", "b", None]})


def carried(*told: dict[str, object]) -> pa.RecordBatch:
    """What Spark brings to the step that opens parcels."""
    data, paths = ([one.get(name) for one in told] for name in ("data", "path"))
    return pa.record_batch([pa.array(data, pa.binary()), pa.array(paths, pa.string())], ["data", "path"])


def test_pairs_go_by_files_as_long_as_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(handing.SPILL, f"{tmp_path},elsewhere")
    monkeypatch.setattr(handing, "MOST_BYTES", 2 * PAIRS.nbytes)
    place = handing.Handing()
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
        monkeypatch.delenv(handing.SPILL, raising=False)
    else:
        monkeypatch.setenv(handing.SPILL, str(tmp_path / folder))
    told = handing.Handing().give(PAIRS)
    assert unpack_rows(told["data"]) == PAIRS


def test_what_is_loaded_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "_modules", 0)
    gc.unfreeze()
    try:
        settling.settle()
        frozen = gc.get_freeze_count()
        assert frozen > 10_000
        kept: list[list[int]] = [[] for _ in range(100)]
        settling.settle()
        assert gc.get_freeze_count() <= frozen
        monkeypatch.setitem(sys.modules, "tests.one_more", sys)
        settling.settle()
        assert gc.get_freeze_count() > frozen, f"and the {len(kept)} lists with it"
    finally:
        gc.unfreeze()
