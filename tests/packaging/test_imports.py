"""Imports respect the packages (spark -> sdk -> host <- devices) and the layers inside each package."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.imports import FAMILIES, LAYERS, PACKAGES, faults_below

from tests.packaging.project import ROOT


def test_no_import_breaks_the_layers() -> None:
    assert faults_below(ROOT) == []


GOOD = {
    "sdk/millrace/table_join.py": "from millrace.host.base import words\nimport pyarrow\nfrom millrace import errors",
    "sdk/millrace/registry.py": "def f():\n    return importlib.import_module('millrace.gpu.opencl')",
    "sdk/millrace/cli/bench.py": "from ..host.base import words\nfrom ..window_join import WindowJoin",
    "host/base/install.py": "from millrace import _version",
    "host/base/words.py": "import numpy\nimport json\nfrom . import errors\nimport millrace.host.base.errors",
    "host/join/matcher.py": "from millrace.host.stream import window_bounds\nfrom millrace.host.join import contract",
    "host/join/panjoin/chain.py": "from millrace.host.join.baseline import scan",
    "host/planner/auto.py": "from millrace.host.join.panjoin.index import PanJoinIndex",
    "gpu/opencl.py": "import pyopencl\nfrom millrace.host.device.contract import Device",
    "sim/rtl.py": "from millrace.hw import image\nimport millrace.host.device.contract, millrace.sim.build",
    "spark/api/join.py": "import millrace as mr\nfrom millrace import errors\nfrom millrace.spark.plan import _splits",
    "spark/api/lookup.py": "import pyspark\nfrom millrace.ingest.checks import choice",
    "tests/host/base/test_words.py": "from millrace.host.base import words\nfrom tests.oracle import pairs",
}

BAD = {
    "sdk": ("sdk/millrace/table_join.py", "from millrace.gpu import opencl"),
    "sdk-spark": ("sdk/millrace/table_join.py", "from millrace import spark"),
    "sdk-relative": ("sdk/millrace/cli/demo.py", "from ..sim.rtl import Rtl"),
    "sdk-layer": ("sdk/millrace/ingest/tables.py", "from millrace.window_join import WindowJoin"),
    "sdk-no-layer": ("sdk/millrace/ingest/tables.py", "from millrace.unknown import thing"),
    "host-sdk": ("host/base/words.py", "from millrace.errors import KeyTypeError"),
    "host-package": ("host/base/words.py", "import millrace"),
    "host-relative": ("host/base/words.py", "from ... import errors"),
    "host-device": ("host/hybrid/pipeline.py", "def f():\n    from millrace.gpu import opencl"),
    "host-typing": ("host/hybrid/pipeline.py", "if TYPE_CHECKING:\n    import millrace.hw.board"),
    "host-by-name": ("host/hybrid/pipeline.py", "importlib.import_module('millrace.sim.rtl')"),
    "host-third-party": ("host/expr/plan.py", "import sqlglot"),
    "later-layer": ("host/base/words.py", "from millrace.host.runtime.jit import kernel"),
    "later-layer-module": ("host/expr/plan.py", "from millrace.host.data import window"),
    "layer-package": ("host/expr/plan.py", "from millrace.host import join"),
    "layer-typing": (
        "host/stream/window_bounds.py",
        "if TYPE_CHECKING:\n    from millrace.host.join.matcher import PairBlock",
    ),
    "family-sibling": ("host/join/direct/keyed_join.py", "from millrace.host.join.panjoin import bisort"),
    "family-from-above": ("host/join/matcher.py", "from millrace.host.join.baseline.scan import ScanIndex"),
    "family-of-baseline": ("host/join/baseline/scan.py", "from millrace.host.join.direct import keyed_join"),
    "gpu-hw": ("gpu/cuda.py", "from millrace.hw import image"),
    "gpu-sdk": ("gpu/cuda.py", "from millrace import device"),
    "hw-sim": ("hw/board.py", "from millrace.sim import loopback"),
    "sim-gpu": ("sim/rtl.py", "import millrace.gpu.opencl"),
    "hls-host": ("hls/build.py", "from millrace.host.base import words"),
    "spark-host": ("spark/api/join.py", "from millrace.host.base import words"),
    "spark-private": ("spark/api/join.py", "from millrace._version import __version__"),
    "spark-private-name": ("spark/api/join.py", "from millrace.table_join import _build"),
    "spark-unnamed": ("spark/api/join.py", "from millrace.ingest.tables import to_table"),
    "spark-layer": ("spark/cluster/workers.py", "from millrace.spark.api import lookup"),
    "bare-package": ("tests/host/base/test_words.py", "from host.base import words"),
    "bare-sdk": ("sdk/millrace/table_join.py", "from sdk.millrace import errors"),
}


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def test_allowed_imports_pass(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    assert faults_below(tmp_path) == []


@pytest.mark.parametrize(("name", "text"), BAD.values(), ids=BAD)
def test_a_forbidden_import_is_reported(tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path, GOOD)
    write(tmp_path, {name: text})
    faults = faults_below(tmp_path)
    assert len(faults) == 1
    assert faults[0].startswith(f"{name}:")


def test_packages_are_read_once(tmp_path: Path) -> None:
    write(tmp_path, {"host/base/words.py": "import sqlglot", "sdk/millrace/errors.py": ""})
    (tmp_path / "sdk/millrace/host").symlink_to("../../host")
    assert [fault.split(":")[0] for fault in faults_below(tmp_path)] == ["host/base/words.py"]


def test_every_folder_is_in_a_layer() -> None:
    """A new folder must be added to the table, otherwise its imports are not checked."""
    for package, layers in LAYERS.items():
        folder = ROOT / "sdk/millrace" if package == "sdk" else ROOT / package
        found = {path.name for path in folder.iterdir() if path.is_dir() and not path.is_symlink()}
        assert found - {"__pycache__"} <= {name for layer in layers for name in layer}, package
        assert [path.name for path in folder.glob("*.py") if package != "sdk"] in ([], ["__init__.py"])
    families = {path.name for path in (ROOT / "host/join").iterdir() if path.is_dir()} - {"__pycache__"}
    assert families <= set(FAMILIES)
    assert set(LAYERS) - {"sdk"} <= set(PACKAGES)
