"""Builds bitstreams with Vivado, and checks the build scripts as far as possible without Vivado.

`build` runs Vivado on a board's `build.tcl`; if it fails, its logs are kept, and the message says where. `check` runs
the same script in tclsh with stubs of Vivado's commands (`hw/boards/zynqmp/vivado_stub.tcl`) and compares the
properties it sets with the board's description. Limit: the stubs cannot check whether the IP of a Vivado version has
these properties, or whether timing is met.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from millrace.host.base.errors import DeviceUnavailable
from millrace.hw import program
from millrace.hw.catalog import Board
from millrace.hw.text import last_words, printable

SHARED = Path(__file__).resolve().parent / "boards" / "zynqmp"
WRAPPER = SHARED / "bisort_engine_bd.v"
MAX_COLUMNS = 132
CONSTRAINTS = ("set_property", "set_false_path", "create_clock", "set_input_delay", "set_output_delay")
"""Commands that are allowed in a constraint file."""
LOGS = ("*.log", "*.jou", "*.rpt")
_VERSION = re.compile(r"^vivado (v[0-9.]+)", re.MULTILINE | re.IGNORECASE)
"""In what `vivado -version` prints: `Vivado v2022.2 (64-bit)`, from 2024.1 on `vivado v2024.1 (64-bit)`."""
_PARAMETER = re.compile(r"^    parameter (?:\[[^]]*\] )?(\w+) =", re.MULTILINE)

Report = Callable[[str, float], None]


def build(board: Board, out: Path, report: Report, logs: Path) -> tuple[dict[str, bytes], dict[str, str]]:
    """Build in `out`; returns bitstream, hardware description and tool versions. `logs`: where a failure keeps logs."""
    vivado = shutil.which("vivado")
    if vivado is None:
        raise DeviceUnavailable(
            f"a bitstream for {board.name} needs Vivado, which is not on the PATH: source its settings64.sh, or build "
            f"on another machine and pack the files with --bitstream and --hwh"
        )
    report(f"{board.name}: Vivado (about half an hour)", 0.0)
    script = str(board.folder / "build.tcl")
    command = [vivado, "-mode", "batch", "-source", script, "-tclargs", str(out), board.build_hash()]
    done = program.run(command, out)
    made = {f"millrace.{kind}": out / f"millrace.{kind}" for kind in ("bit", "hwh")}
    if done.returncode or not all(path.is_file() for path in made.values()):
        _keep_logs(out, logs, done.stdout + done.stderr)
        raise DeviceUnavailable(f"Vivado failed; its logs are in {logs}: {_errors(done.stdout + done.stderr)}")
    found = _VERSION.search(program.run([vivado, "-version"]).stdout)
    return {name: path.read_bytes() for name, path in made.items()}, {"vivado": found[1] if found else "unknown"}


def _keep_logs(out: Path, logs: Path, printed: str) -> None:
    """Copy logs, journals and reports, flat, with the names of their folders; `printed` becomes `printed.log`."""
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "printed.log").write_text(printed, encoding="utf-8")
    for pattern in LOGS:
        for path in out.rglob(pattern):
            shutil.copyfile(path, logs / "-".join(path.relative_to(out).parts))


def _errors(printed: str) -> str:
    """Vivado's first lines that begin with `ERROR:`, or else the end of its output."""
    errors = [line for line in printed.splitlines() if line.startswith("ERROR:")]
    return printable(" ".join(errors[:3])) if errors else last_words(printed)


def check(board: Board) -> list[str]:
    """The problems of a board's scripts that can be found without Vivado."""
    scripts = [*SHARED.glob("*.tcl"), *board.folder.glob("*.tcl"), *board.folder.glob("*.xdc")]
    found = [problem for path in sorted(scripts) for problem in _style(path)]
    found += [problem for path in board.folder.glob("*.xdc") for problem in _constraints(path)]
    with tempfile.TemporaryDirectory(prefix="millrace-tcl-") as scratch:
        settings = run_stub(board.folder / "build.tcl", Path(scratch), board.build_hash())
        if isinstance(settings, str):
            return [*found, settings]
        missing = [kind for kind in ("bit", "hwh") if not (Path(scratch) / f"millrace.{kind}").exists()]
    found += [f"{board.name}: the script writes no millrace.{kind}" for kind in missing]
    return found + _differences(board, settings)


def run_stub(script: Path, out: Path, build_hash: str) -> dict[str, str] | str:
    """Run a script with the stubs; returns the properties it sets, by name, or the error text."""
    parameters = " ".join(_PARAMETER.findall(WRAPPER.read_text(encoding="utf-8")))
    command = ["tclsh", str(SHARED / "vivado_stub.tcl"), str(script), str(out), build_hash, parameters]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise DeviceUnavailable("tclsh is not installed: apt-get install tcl") from None
    if done.returncode:
        return f"{script.name}: {done.stderr.strip().splitlines()[0] if done.stderr.strip() else 'failed'}"
    lines = (line.partition("\t") for line in done.stdout.splitlines())
    return {name: value for name, _, value in lines}


def _differences(board: Board, settings: dict[str, str]) -> list[str]:
    """Differences between the properties that a script sets and the board's description."""
    wanted = {
        "part": board.part,
        "design": board.design,
        "offset": f"0x{board.pynq['base']:X}",
        "CONFIG.PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ": f"{board.clock_hz / 1e6:g}",
        "CONFIG.BUILD_HASH": f"0x{board.build_hash()}",
        # The wrapper always has one cluster and no parameter for it.
        **{f"CONFIG.{name}": str(value) for name, value in board.parameters.items() if name != "CLUSTERS"},
    }
    return [
        f"{board.name}: {name} is {settings.get(name)!r} in the script and {value!r} in board.toml"
        for name, value in wanted.items()
        if settings.get(name) != value
    ]


def _style(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_COLUMNS or "\t" in line or line != line.rstrip():
            found.append(f"{path.name}:{number}: line too long, a tab, or trailing space")
    if not lines or not lines[0].startswith("# "):
        found.append(f"{path.name}: the first line must be a comment that describes the file")
    return found


def _constraints(path: Path) -> list[str]:
    commands = [line.split()[0] for line in path.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    return [f"{path.name}: {command} is not a constraint command" for command in commands if command not in CONSTRAINTS]
