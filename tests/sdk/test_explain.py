"""`mr.explain` and `.explain()`: the plan, the index, the device and why; nothing is opened or changed."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace import registry
from millrace.host.join.registry import INDEXES
from millrace.host.planner import calibration
from tests.host import faults

SCHEMA = pa.schema({"x": pa.int64(), "y": pa.int64(), "ts": pa.int64()})
TABLE = pa.table({"x": [1, 2], "y": [3, 4], "ts": [5, 6]})
BAND = "abs(r.x - s.x) <= 5 AND r.y < s.y AND r.y > 3 AND s.x <> 7"


@pytest.fixture
def unopened(monkeypatch: pytest.MonkeyPatch) -> None:
    """No device can be opened."""
    import_module("millrace.explainer")  # loads all modules that name `device` before it is replaced

    def fail(*given: Any, **named: Any) -> Any:
        raise AssertionError("a device was opened")

    monkeypatch.setattr(registry, "device", fail)


@pytest.mark.usefixtures("unopened")
@pytest.mark.parametrize("given", [SCHEMA, TABLE, TABLE.to_batches()[0]])
def test_the_logical_plan_is_shown(given: Any) -> None:
    found = mr.explain("join", given, given, on=BAND, how="left", index="bisort", device="cpu").to_dict()
    assert found["operator"] == "join"
    assert found["plan"] == {
        "condition": BAND,
        "kind": "band",
        "keys": {"r": ["r.x"], "s": ["s.x"]},
        "rechecked": ["r.y < s.y"],
        "filters": {"r": ["r.y > 3"], "s": ["s.x <> 7"]},
        "how": "left",
        "output": "pairs",
    }
    assert found["index"]["name"] == "bisort"
    assert found["index"]["why"] == "the index was named"
    assert set(found["index"]["serving"]) == set(INDEXES)
    assert found["device"] == {"name": "cpu", "why": "the device was named", "threads": None, "fallback": None}
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(
    ("on", "more", "index", "why"),
    [
        ("r.x = s.x", {}, "auto", "few partners"),
        ("r.x < s.x", {}, "scan", "many partners"),
        ("r.x < s.x", {"output": "count"}, "auto", "only counts"),
        ("r.x * s.x > 4", {}, "scan", "no other index"),
        ("r.ts = s.ts AND r.x < s.x AND r.y > s.y", {}, "spo", "behind an equality"),
        ("r.ts = s.ts AND r.x < s.x AND r.y <> s.y", {}, "auto", "few partners"),
        ("r.x = s.x", {"device": "opencl"}, "bisort", "auto cannot run on device opencl:0"),
    ],
)
def test_the_explanation_names_what_the_call_uses(on: str, more: Any, index: str, why: str) -> None:
    arguments: dict[str, Any] = {"on": on, "window": "9 rows", "schemas": {"r": SCHEMA, "s": SCHEMA}, **more}
    found = mr.explain("window_join", **arguments)
    j = mr.WindowJoin(**arguments)
    assert (found.index["name"], found.device["name"]) == (j.stats.index, j.stats.device)
    assert found.index["name"] == index
    assert why in found.index["why"]
    assert j.explain().to_dict() == found.to_dict()
    assert "cpu" in mr.explain("window_join", on=on, window="9 rows").device["name"]


@pytest.mark.usefixtures("unopened")
def test_a_calibrated_device_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    winner = calibration.Calibration(device="cuda:0")
    monkeypatch.setattr(calibration, "calibration", lambda threads: winner)
    found = mr.explain("join", SCHEMA, SCHEMA, on="r.x = s.x").device
    assert (found["name"], found["why"]) == ("cpu", "cuda:0 cannot be used for this")
    monkeypatch.setattr(registry, "_real_kind", lambda name, threads: "cuda")
    found = mr.explain("join", SCHEMA, SCHEMA, on="r.x = s.x").device
    assert (found["name"], found["why"]) == ("cuda:0", "it won `millrace calibrate` on this machine")


@pytest.mark.usefixtures("unopened")
def test_what_the_call_refuses_is_refused() -> None:
    with pytest.raises(mr.ArgumentError, match=r"'knn' is unknown; allowed are 'join', 'window_join'"):
        mr.explain("knn", SCHEMA, SCHEMA)  # type: ignore[arg-type]
    with pytest.raises(mr.ArgumentError, match="how="):
        mr.explain("join", SCHEMA, SCHEMA, on="r.x = s.x", how="up")
    with pytest.raises(mr.SchemaError, match=r"r\.q"):
        mr.explain("join", SCHEMA, SCHEMA, on="r.q = s.x")
    with pytest.raises(TypeError):
        mr.explain("join", SCHEMA, SCHEMA, "r.x = s.x", "left")
    with pytest.raises(mr.ArgumentError, match="cannot serve"):
        mr.explain("window_join", "r.x * s.x > 4", window="5 rows", index="bisort")
    with pytest.raises(mr.DeviceUnavailable, match="cannot be used"):
        mr.explain("window_join", "r.x = s.x", window="5 rows", device="fpga:none")
    with pytest.raises(mr.DeviceUnavailable, match=r"'opencl' cannot run index 'btree'; it runs on cpu"):
        mr.explain("window_join", "r.x = s.x", window="5 rows", index="btree", device="opencl")


def test_a_join_explains_itself_before_and_after_it_knows_its_columns() -> None:
    j = mr.WindowJoin("r.x = s.x", window=("5", "6"), time="ts")
    assert j.explain().plan["keys"] == "known once both schemas are"
    for side in "rs":
        j.push(side, TABLE)
    found = j.explain().to_dict()
    assert found["plan"]["keys"] == {"r": ["r.x"], "s": ["s.x"]}
    assert found["plan"]["window"] == {"r": "5", "s": "6"}
    assert found["plan"]["time"] == {"r": "ts", "s": "ts"}
    assert j.stats["pending"] > 0


def test_a_fallback_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.BACKENDS, "faulty", faults.MODULE)
    j = mr.WindowJoin("r.x = s.x", window="5 rows", index="scan", device="faulty", fallback="cpu")
    faults.arm("launch", 1)
    j.push("r", TABLE)
    j.push("s", TABLE)
    assert not faults.disarm()
    found = j.explain().device
    assert found["name"] == "cpu"
    assert found["why"] == j.stats.fallback


def test_a_live_join_explains_itself() -> None:
    schema = pa.schema([("x", pa.int64())])
    with mr.LiveJoin("r.x = s.x", window="5 rows", schemas={"r": schema, "s": schema}) as live:
        found = live.explain()
    assert found.operator == "live_join"
    assert found.device["why"] == "live joins run on the CPU only"


def test_an_index_explains_itself() -> None:
    ix = mr.OrderedIndex(np.arange(1000), device="cpu", layout="regular")
    found = ix.explain()
    assert found.device["name"] == "cpu"
    assert found.index["name"] == "HB+-Tree, layout regular"
    assert "1,000 of type int64" in str(found)
    on_device = mr.OrderedIndex(np.arange(1000), device="opencl").explain()
    assert on_device.device["host levels"] is not None


def test_it_prints_well() -> None:
    found = mr.explain("join", SCHEMA, SCHEMA, on="r.x < s.x")
    lines = str(found).splitlines()
    assert repr(found) == str(found)
    assert lines[0] == "join"
    starts = {len(line) - len(line[2:].split("  ", 1)[1].lstrip()) for line in lines[1:]}
    assert len(starts) == 1
    html = found._repr_html_()
    assert html.startswith("<table><caption>join</caption>")
    assert "r.x &lt; s.x" in html


@pytest.mark.parametrize(("device", "index"), [("cpu", "spo"), ("opencl:0", "spo"), ("hls", "bisort")])
def test_two_order_terms_name_the_index_that_the_device_runs(device: str, index: str) -> None:
    table = pa.table({"a": [1, 2], "b": [1, 2]})
    found = mr.explain("join", table, table, on="r.a < s.a AND r.b > s.b", device=device)
    assert found.index["name"] == index
