"""Devices in tasks: each returns and counts the same rows; cards have locks; our scripts list cards for Spark."""

from __future__ import annotations

import json
import os
import select
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import millrace as mr
from millrace import spark as ms
from millrace.host.device.contract import DeviceInfo
from millrace.spark.cluster import discovery
from millrace.spark.cluster.cards import card_lock
from millrace.spark.cluster.task import DeviceRequest, task_device
from millrace.spark.plan.strategy import StrategyName
from tests.spark.sessions import GROUP, run_script
from tests.watchdog import WATCHDOG

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
    sides: tuple[DataFrame, DataFrame], device: str, strategy: StrategyName, **more: Any
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


@pytest.mark.parametrize(
    ("device", "automatic", "wanted"),
    [
        ("auto", "opencl:0", "opencl:3"),
        ("auto", "cuda:0", "cuda:3"),
        ("auto", "cpu", "cpu"),
        ("opencl", "cpu", "opencl:3"),
        ("opencl:1", "cpu", "opencl:1"),
    ],
)
def test_a_task_works_on_the_card_that_spark_gave_it(
    device: str, automatic: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = SimpleNamespace(cpus=lambda: 1, resources=lambda: {"gpu": SimpleNamespace(addresses=["3"])})
    monkeypatch.setattr("millrace.spark.cluster.task.TaskContext.get", lambda: given)
    monkeypatch.setattr("millrace.spark.cluster.task._auto_device", lambda: automatic)
    found = task_device(DeviceRequest(device, None, mr.__version__, (("gpu", 2),)))
    assert found.name == wanted
    assert found.slots == (1 if wanted == "cpu" else 2)


def test_named_devices_are_never_replaced(sides: tuple[DataFrame, DataFrame]) -> None:
    missing = next(d.name for d in mr.devices() if not d.available)
    with pytest.raises(PySparkException, match="DeviceUnavailable"):
        joined(sides, missing, "broadcast")


def compiled_by(spark: SparkSession) -> dict[int, int]:
    """How many kernels each worker's process has compiled because its cache did not have them."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc as _gc
        import os as _os

        from numba.core.ccallback import CFunc as _CFunc
        from numba.core.dispatcher import Dispatcher as _Dispatcher

        everything = _gc.get_objects()
        missed = sum(sum(d.stats.cache_misses.values()) for d in everything if isinstance(d, _Dispatcher))
        missed += sum(c.cache_hits == 0 for c in everything if isinstance(c, _CFunc))
        for _ in batches:
            pass
        yield pa.record_batch([pa.array([_os.getpid()]), pa.array([missed])], names=["pid", "missed"])

    return {row.pid: row.missed for row in spark.range(2).mapInArrow(count, "pid long, missed long").collect()}


def test_workers_compile_nothing_after_the_warm_up(spark: SparkSession, sides: tuple[DataFrame, DataFrame]) -> None:
    index = mr.OrderedIndex(pa.array(range(1000)))

    def run_all(rows: int) -> None:
        frame = spark.range(rows)
        ms.lookup(frame, index, key="id", device="cpu").count()
        for strategy in ("broadcast", "range"):
            ms.join(frame, frame, on="abs(r.id - s.id) <= 1", device="cpu", strategy=strategy).count()

    run_all(1000)
    before = compiled_by(spark)
    run_all(70_000)
    after = compiled_by(spark)
    assert after == {pid: before.get(pid, 0) for pid in after}, "a worker compiled, or a new one did not find the cache"


# Task devices and locks.


def test_without_spark_a_task_uses_the_device_itself() -> None:
    found = task_device(DeviceRequest("cpu", None, mr.__version__))
    assert (found.name, found.card) == ("cpu", False)
    assert not task_device(DeviceRequest("rtl", None, mr.__version__)).card
    with pytest.raises(mr.StateError, match=r"the driver has 9\.9"):
        task_device(DeviceRequest("cpu", None, "9.9"))


HOLD = """
import sys
from millrace.spark.cluster.cards import card_lock
print("asks", flush=True)
with card_lock(sys.argv[1], int(sys.argv[2])):
    print("taken", flush=True)
    sys.stdin.read()
"""


def hold(card: str, slots: int, folder: Path) -> subprocess.Popen[bytes]:
    """A process that asks for a slot, prints that it has one, and holds it until its input ends or it dies."""
    environment = {**os.environ, "MILLRACE_LOCK_DIR": str(folder)}
    command = [sys.executable, "-c", HOLD, card, str(slots)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"asks\n"
    return holder


def has_slot(holder: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether it gets the slot within some seconds."""
    assert holder.stdout is not None
    return bool(select.select([holder.stdout], [], [], seconds)[0])


@pytest.mark.parametrize("slots", [1, 2])
def test_a_card_has_so_many_slots_and_a_dead_process_holds_none(slots: int, tmp_path: Path) -> None:
    holders = [hold("fpga:x/y", slots, tmp_path) for _ in range(slots)]
    assert all(has_slot(holder, WATCHDOG) for holder in holders)
    late = hold("fpga:x/y", slots, tmp_path)
    assert not has_slot(late, 0.5), "every slot is taken"
    holders[0].kill()
    assert has_slot(late, WATCHDOG), "the system released the dead process's slot"
    for holder in (*holders, late):
        holder.communicate()


def test_locks_are_for_all_users_whatever_the_mask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    monkeypatch.setenv("MILLRACE_LOCK_DIR", str(folder))
    before = os.umask(0o077)
    try:
        with card_lock("cuda:0", 2):
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    finally:
        os.umask(before)
    assert modes == {"cuda_0.0": 0o666, "cuda_0.1": 0o666}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777


def test_a_slot_has_its_share_of_the_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MILLRACE_LOCK_DIR", str(tmp_path))
    monkeypatch.delenv("MILLRACE_DEVICE_SHARE", raising=False)
    with card_lock("cuda:0", 4):
        assert os.environ["MILLRACE_DEVICE_SHARE"] == "0.25"
    assert "MILLRACE_DEVICE_SHARE" not in os.environ
    with card_lock("cuda:0", 1):
        assert "MILLRACE_DEVICE_SHARE" not in os.environ


@pytest.fixture(scope="module")
def chained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_script("chain.py", str(tmp_path_factory.mktemp("chain")))


def test_two_operators_of_a_stage_do_not_deadlock_on_a_card(chained: dict[str, Any]) -> None:
    rows, pairs = 5000, 3 * 5000 - 2
    for strategy in ("broadcast", "range"):
        assert chained[f"lookup, {strategy}"] == chained[f"{strategy}, lookup"] == pairs
        report = chained[f"lookup, {strategy} counts"]
        assert (report["asked"], report["pairs"], report["fallbacks"]) == (rows, pairs, 0)
        assert report["device_rows"] >= rows


def test_a_card_is_closed_before_it_is_unlocked(chained: dict[str, Any]) -> None:
    everyone, at_once = chained["holders"]
    assert everyone >= 2
    assert at_once == 1, "no process had a handle while another worked"
    assert chained["left open"] == 0


# Discovery.


def test_the_scripts_list_this_machines_cards() -> None:
    for resource in ("gpu", "fpga"):
        script = ms.discovery_script(resource)
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run([script], capture_output=True, text=True, check=True, env=environment)
        assert json.loads(done.stdout) == {"name": resource, "addresses": discovery.addresses(resource)}
    with pytest.raises(mr.ArgumentError, match="resource='tpu'"):
        ms.discovery_script("tpu")


def test_an_address_is_the_part_after_the_colon(monkeypatch: pytest.MonkeyPatch) -> None:
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
