"""The fault points of the files between Spark's workers: a run file is only a cache, and pairs travel another way."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from millrace.faults import injected
from millrace.spark.stream import run_files
from millrace.spark.stream.pair_files import SPILL_DIRS, PairOutput, Writer, read_and_remove


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The spill folder of an executor."""
    monkeypatch.setenv(SPILL_DIRS, str(tmp_path))
    return tmp_path


def test_a_run_that_cannot_be_published_is_read_from_the_state_store() -> None:
    with injected("spark.run_write=1*raise") as rules:
        run_files.publish("shard", "run", b"rows")
        assert run_files.fetch("shard", "run") is None
        run_files.publish("shard", "run", b"rows")
    assert rules["spark.run_write"].fired == 1
    with injected("spark.run_read=1*raise"):
        assert run_files.fetch("shard", "run") is None
        found = run_files.fetch("shard", "run")
        assert found is not None
        assert found.to_pybytes() == b"rows"


def test_pairs_that_cannot_be_written_travel_as_data(folder: Path) -> None:
    output = PairOutput(Writer(0, 0, 0, "query", "join"))
    pairs = pa.table({"r_seq": [1, 2]})
    with injected("spark.pair_write=1*raise"):
        assert "data" in output.add(pairs)
        assert list(folder.iterdir()) == []
        path = str(output.add(pairs)["path"])
    with injected("spark.pair_read=1*raise"):
        with pytest.raises(OSError, match="injected"):
            read_and_remove(path)
        assert len(read_and_remove(path)) > 0
    assert list(folder.iterdir()) == []
