"""Runs the Yosys of the Python package `pyosys` in a separate process, because a failing pass ends its process.

`run` takes the lines of a script and returns Yosys' output; a failure raises `DeviceUnavailable` with the last lines of
the output. The module is also a program, `python -m millrace.hw.yosys -ql LOG SCRIPT`, because SymbiYosys calls Yosys
with this command line. Needs the extra `hw`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from millrace.host.base.errors import DeviceUnavailable
from millrace.host.base.install import install_command

RTL = Path(__file__).resolve().parent / "rtl"
INSTALL = install_command("hw")
PROGRAM = (sys.executable, "-m", "millrace.hw.yosys")
_LAST_LINES = 12


def require(module: str) -> Path:
    """The folder of a tool's Python package."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise DeviceUnavailable(f"{module} is not installed: {INSTALL}")
    return Path(spec.origin).parent


def sources(folder: Path = RTL) -> list[Path]:
    """The modules of a folder, in a fixed order."""
    return sorted(folder.glob("*.sv"))


def run(lines: Sequence[str], folder: Path | None = None) -> str:
    """Run a script and return Yosys' output; `folder`: the base of relative paths."""
    require("pyosys")
    with tempfile.TemporaryDirectory(prefix="millrace-yosys-") as scratch:
        log, script = Path(scratch) / "script.log", Path(scratch) / "script.ys"
        script.write_text("\n".join(lines) + "\n", encoding="utf-8")
        try:
            call([*PROGRAM, "-ql", str(log), str(script)], folder or Path(scratch))
        except DeviceUnavailable as error:
            raise DeviceUnavailable(f"{error}\n{_end(log.read_text(encoding='utf-8'))}") from None
        return log.read_text(encoding="utf-8")


def call(command: Sequence[str], folder: Path) -> str:
    """Run a tool and return its output, stderr included."""
    # Import the packages of this checkout, even if another version is installed.
    path = os.pathsep.join([str(Path(__file__).absolute().parents[2]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        name = " ".join(command[:3])
        raise DeviceUnavailable(f"{name} failed with exit code {done.returncode}:\n{_end(done.stdout)}")
    return done.stdout


def _end(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-_LAST_LINES:])


def _main(arguments: Sequence[str]) -> None:
    """`-ql LOG SCRIPT`: run a script and write all output to the log."""
    _, log, script = arguments
    with open(log, "w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        from pyosys import libyosys

        from millrace.hw import alm  # noqa: F401, which registers `alm_load`

        libyosys.run_pass(f"script {script}", libyosys.Design())
        libyosys.log_flush()


if __name__ == "__main__":
    _main(sys.argv[1:])
