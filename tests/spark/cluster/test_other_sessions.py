"""The same calls through Spark Connect and on executors in separate processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.sessions import GROUP, run_script

pytestmark = GROUP


def test_connect(tmp_path: Path) -> None:
    report = run_script("connect.py", str(tmp_path))
    assert report["kind"].startswith("pyspark.sql.connect")
    assert report["lookup"] == [[f"v{i // 2}"] * 2 if i % 2 == 0 else [None, None] for i in range(10)]
    assert report["lookup_metrics"] == {"rows": 10, "a_null_keys": 0, "b_null_keys": 0}
    assert report["waited"] == {"rows": 10, "value_null_keys": 0}, "get waits for the action"
    assert len(report["joins"]) == 6
    assert all(report["joins"].values()), report["joins"]
    assert report["pairs"] == 28
    assert report["counted"]["pairs"] == 28
    assert report["stream"]
    assert report["window_join"]
    assert report["heard"]
    assert report["behind"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return run_script("cluster.py", str(tmp_path_factory.mktemp("cluster")))


def test_two_executors_join_and_look_up(cluster: dict[str, object]) -> None:
    assert cluster["joins"] == {"broadcast": True, "grid": True}
    assert cluster["lookup"] == 1000
    assert cluster["files"] != 0
    assert not cluster["left"], "the session that stops removes its files"


def test_a_task_takes_the_card_that_spark_gave_it(cluster: dict[str, object]) -> None:
    assert cluster["devices"] == ["opencl:0 True 2"]
    counts = cluster["opencl"]
    assert isinstance(counts, dict)
    assert counts["rows"] == counts["pairs"] == 2 * 60_000 - 1
    assert counts["device_rows"] >= 60_000


def test_two_executors_never_use_one_card_at_once(cluster: dict[str, object]) -> None:
    counts = cluster["card"]
    assert isinstance(counts, dict)
    assert counts["rows"] == 2 * 60_000 - 1
    assert cluster["holders"] == [2, 1], "two processes had the card, one at a time"
