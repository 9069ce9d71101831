"""No import points back: spark -> sdk -> host <- devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging.arrows import faults_below
from tests.packaging.project import ROOT


def test_no_arrow_points_back() -> None:
    assert faults_below(ROOT) == []


GOOD = {
    "sdk/millrace/join.py": "from millrace.host import words\nimport pyarrow\nfrom millrace import errors",
    "sdk/millrace/device.py": "def f():\n    return importlib.import_module('millrace.gpu.opencl')",
    "sdk/millrace/cli/bench.py": "from . import table\nfrom ..host import words",
    "host/words.py": "import numpy\nimport json\nfrom . import errors\nimport millrace.host.errors",
    "gpu/opencl.py": "import pyopencl\nfrom millrace.host.device import Device",
    "sim/rtl.py": "from millrace.hw import image\nimport millrace.host.device, millrace.sim.build",
    "spark/join.py": "import millrace as mr\nfrom millrace import errors\nfrom millrace.spark import _splits",
    "spark/lookup.py": "import pyspark",
    "tests/host/test_words.py": "from millrace.host import words\nfrom tests.oracle import pairs",
}

BAD = {
    "sdk": ("sdk/millrace/join.py", "from millrace.gpu import opencl"),
    "sdk-spark": ("sdk/millrace/join.py", "from millrace import spark"),
    "sdk-relative": ("sdk/millrace/cli/demo.py", "from ..sim.rtl import Rtl"),
    "host-sdk": ("host/words.py", "from millrace.errors import KeyTypeError"),
    "host-package": ("host/words.py", "import millrace"),
    "host-relative": ("host/words.py", "from .. import errors"),
    "host-device": ("host/pipeline.py", "def f():\n    from millrace.gpu import opencl"),
    "host-typing": ("host/pipeline.py", "if TYPE_CHECKING:\n    import millrace.hw.board"),
    "host-by-name": ("host/pipeline.py", "importlib.import_module('millrace.sim.rtl')"),
    "host-third-party": ("host/plan.py", "import sqlglot"),
    "gpu-hw": ("gpu/cuda.py", "from millrace.hw import image"),
    "gpu-sdk": ("gpu/cuda.py", "from millrace import device"),
    "hw-sim": ("hw/board.py", "from millrace.sim import loopback"),
    "sim-gpu": ("sim/rtl.py", "import millrace.gpu.opencl"),
    "hls-host": ("hls/build.py", "from millrace.host import words"),
    "spark-host": ("spark/join.py", "from millrace.host import words"),
    "spark-private": ("spark/join.py", "from millrace._version import __version__"),
    "bare-room": ("tests/host/test_words.py", "from host import words"),
    "bare-sdk": ("sdk/millrace/join.py", "from sdk.millrace import errors"),
}


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def test_right_arrows_are_let_through(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    assert faults_below(tmp_path) == []


@pytest.mark.parametrize(("name", "text"), BAD.values(), ids=BAD)
def test_a_wrong_arrow_is_seen(tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path, GOOD)
    write(tmp_path, {name: text})
    faults = faults_below(tmp_path)
    assert len(faults) == 1
    assert faults[0].startswith(f"{name}:")


def test_rooms_are_read_once(tmp_path: Path) -> None:
    write(tmp_path, {"host/words.py": "import sqlglot", "sdk/millrace/errors.py": ""})
    (tmp_path / "sdk/millrace/host").symlink_to("../../host")
    assert [fault.split(":")[0] for fault in faults_below(tmp_path)] == ["host/words.py"]
