"""Devices in tasks: the same rows from each, counted; cards have locks; Spark finds cards by our scripts."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import millrace as mr
from millrace import spark as ms
from millrace.host.device import DeviceInfo
from millrace.host.jit import cache_dir
from millrace.spark import discovery
from millrace.spark.cards import card_lock
from millrace.spark.task import Asked, place_of
from tests.spark.sessions import GROUP

pytestmark = GROUP
ROWS = 30_000
DEVICES = [d.name for d in mr.devices() if d.available and d.name.partition(":")[0] in ("cpu", "opencl", "rtl", "hls")]


@pytest.fixture(scope="module")
def sides(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    rng = np.random.default_rng(3)

    def table(rows: int) -> pa.Table:
        x = rng.integers(0, 4 * ROWS, rows, dtype=np.int32)
        return pa.table({"n": np.arange(rows), "x": pa.array(x, mask=rng.random(rows) < 0.01)})

    r, s = (spark.createDataFrame(table(ROWS)).repartition(2).cache() for _ in "rs")
    return r, s


def joined(
    sides: tuple[DataFrame, DataFrame], device: str, strategy: str, **more: Any
) -> tuple[pa.Table, dict[str, int]]:
    metrics = ms.Metrics()
    on = "abs(r.x - s.x) <= 2"
    rows = ms.join(*sides, on=on, device=device, strategy=strategy, metrics=metrics, **more).toArrow()
    return rows.sort_by([("r_n", "ascending"), ("s_n", "ascending")]).combine_chunks(), metrics.get


@pytest.mark.parametrize("device", DEVICES)
def test_every_device_gives_the_same_rows_and_counts_them(sides: tuple[DataFrame, DataFrame], device: str) -> None:
    r, s = (side.drop("row").toArrow().sort_by("n") for side in sides)
    wanted = (
        mr.join(r, s, on="abs(r.x - s.x) <= 2")
        .drop(["r_seq", "s_seq"])
        .sort_by([("r_n", "ascending"), ("s_n", "ascending")])
    )
    for strategy in ("broadcast", "range"):
        rows, counts = joined(sides, device, strategy)
        assert rows.equals(wanted.combine_chunks())
        assert counts["pairs"] == rows.num_rows
        assert (counts["r_rows"], counts["s_rows"]) == (ROWS, ROWS)
        assert counts["r_null_keys"] == r["x"].null_count
        assert counts["s_null_keys"] == s["x"].null_count
        assert counts["device_rows"] >= ROWS - r["x"].null_count
        assert (counts["device_cycles"] > 0) == (device == "rtl")
        assert counts["fallbacks"] == 0


def test_named_devices_are_never_replaced(sides: tuple[DataFrame, DataFrame]) -> None:
    missing = next(d.name for d in mr.devices() if not d.available)
    with pytest.raises(PySparkException, match="DeviceUnavailable"):
        joined(sides, missing, "broadcast")


def test_workers_compile_nothing_after_the_warm_up(spark: SparkSession, sides: tuple[DataFrame, DataFrame]) -> None:
    index = mr.OrderedIndex(pa.array(range(1000)))

    def work(rows: int) -> None:
        frame = spark.range(rows)
        ms.lookup(frame, index, key="id", device="cpu").count()
        for strategy in ("broadcast", "range"):
            ms.join(frame, frame, on="abs(r.id - s.id) <= 1", device="cpu", strategy=strategy).count()

    def compiled() -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in cache_dir().rglob("*") if path.is_file()}

    work(1000)
    before = compiled()
    assert before
    work(70_000)
    assert compiled() == before


# Places and locks.


def test_without_spark_a_place_is_the_device_itself() -> None:
    place = place_of(Asked("cpu", None, mr.__version__))
    assert (place.device, place.card) == ("cpu", False)
    assert not place_of(Asked("rtl", None, mr.__version__)).card
    with pytest.raises(mr.StateError, match=r"the driver has 9\.9"):
        place_of(Asked("cpu", None, "9.9"))


def _hold(card: str, slots: int, folder: str, taken: Event, let_go: Event) -> None:
    os.environ["MILLRACE_LOCK_DIR"] = folder
    with card_lock(card, slots):
        taken.set()
        let_go.wait(30)


@pytest.mark.parametrize("slots", [1, 2])
def test_a_card_has_so_many_slots_and_a_dead_process_holds_none(slots: int, tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    taken, let_go = [spawn.Event() for _ in range(slots + 1)], spawn.Event()
    holders = [
        spawn.Process(target=_hold, args=("fpga:x/y", slots, str(tmp_path), event, let_go), daemon=True)
        for event in taken
    ]
    for holder, event in zip(holders[:slots], taken, strict=False):
        holder.start()
        assert event.wait(30)
    holders[slots].start()
    time.sleep(0.5)
    assert not taken[slots].is_set(), "every slot is taken"
    holders[0].kill()
    assert taken[slots].wait(30), "the system gave the dead one's slot back"
    let_go.set()
    for holder in holders:
        holder.join(30)


def test_a_slot_has_its_share_of_the_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MILLRACE_LOCK_DIR", str(tmp_path))
    monkeypatch.delenv("MILLRACE_DEVICE_SHARE", raising=False)
    with card_lock("cuda:0", 4):
        assert os.environ["MILLRACE_DEVICE_SHARE"] == "0.25"
    assert "MILLRACE_DEVICE_SHARE" not in os.environ
    with card_lock("cuda:0", 1):
        assert "MILLRACE_DEVICE_SHARE" not in os.environ


# Discovery.


def test_the_scripts_tell_spark_what_is_here() -> None:
    for resource in ("gpu", "fpga"):
        script = ms.discovery_script(resource)
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run([script], capture_output=True, text=True, check=True, env=environment)
        assert json.loads(done.stdout) == {"name": resource, "addresses": discovery.addresses(resource)}
    with pytest.raises(mr.ArgumentError, match="resource='tpu'"):
        ms.discovery_script("tpu")


def test_addresses_are_what_stands_behind_the_colon(monkeypatch: pytest.MonkeyPatch) -> None:
    infos = [
        DeviceInfo("cpu", "cpu", True, ""),
        DeviceInfo("opencl:0", "opencl-gpu", True, ""),
        DeviceInfo("opencl:1", "opencl-cpu", True, ""),
        DeviceInfo("fpga:pynq-z2", "fpga", True, ""),
        DeviceInfo("fpga:gone", "fpga", False, ""),
    ]
    monkeypatch.setattr(discovery, "devices", lambda: infos)
    assert discovery.addresses("gpu") == ["0"]
    assert discovery.addresses("fpga") == ["pynq-z2"]
    cuda = [DeviceInfo(f"cuda:{i}", "cuda", True, "") for i in range(2)]
    monkeypatch.setattr(discovery, "devices", lambda: [*infos, *cuda])
    assert discovery.addresses("gpu") == ["0", "1"], "each card once"
