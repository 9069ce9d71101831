"""tools/setup.sh runs once, starts over after an interruption, and installs what is missing or reports it.

It runs in a small separate tree with a lock of one package and a PATH that contains only the test's programs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.project import ROOT, locked
from tests.watchdog import WATCHDOG

TOOLS = [
    "bash",
    "awk",
    "cat",
    "cut",
    "dirname",
    "env",
    "flock",
    "grep",
    "head",
    "id",
    "mkdir",
    "mv",
    "printf",
    "rm",
    "sed",
    "sha256sum",
    "tail",
    "tee",
    "tr",
]
JAVA = "#!/bin/sh\necho 'openjdk version \"{}\"' >&2\n"
PYPROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "millrace-sdk"
version = "0"
[tool.setuptools]
py-modules = []
"""


class Machine:
    """A tree to set up and its PATH."""

    def __init__(self, folder: Path) -> None:
        self.tree, self.bin = folder / "tree", folder / "bin"
        self.bin.mkdir()
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found, tool
            (self.bin / tool).symlink_to(found)
        self.script("python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        self.script("java", JAVA.format("17.0.1"))
        self.script("g++", "#!/bin/sh\nexit 0\n")
        self.script("iverilog", "#!/bin/sh\nexit 0\n")
        self.script("chromium", "#!/bin/sh\nexit 0\n")
        self.script("tclsh", "#!/bin/sh\nexit 0\n")
        self._make_tree()

    def _make_tree(self) -> None:
        (self.tree / "constraints").mkdir(parents=True)
        (self.tree / "tools").mkdir()
        shutil.copy(ROOT / "tools" / "setup.sh", self.tree / "tools")
        (self.tree / "pyproject.toml").write_text(PYPROJECT)
        (pin,) = (pin for pin in locked("main") if pin.name == "setuptools")
        hashes = " \\\n    ".join(f"--hash={value}" for value in pin.hashes)
        self.lock = self.tree / "constraints" / "main.txt"
        self.lock.write_text(f"{pin.name}=={pin.version} \\\n    {hashes}\n")

    def script(self, name: str, text: str) -> None:
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def setup(self) -> subprocess.CompletedProcess[str]:
        pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        return subprocess.run(
            ["bash", self.tree / "tools" / "setup.sh"],
            env={**pip, "PATH": str(self.bin), "HOME": os.environ["HOME"]},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=WATCHDOG,
            check=False,
        )

    def contents(self) -> dict[str, int]:
        """Every file of the tree and when it was last written."""
        return {str(p): p.lstat().st_mtime_ns for p in self.tree.rglob("*") if p.suffix != ".lock"}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_it_does_its_work_once_and_again_when_needed(machine: Machine) -> None:
    first = machine.setup()
    assert (first.returncode, first.stderr) == (0, "")
    assert "done" in first.stdout
    made = machine.contents()

    again = machine.setup()
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert machine.contents() == made

    marker = machine.tree / ".venv" / "stray"
    marker.touch()
    with (machine.tree / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    changed = machine.setup()
    assert "editable" in changed.stdout
    assert marker.exists(), "another pyproject.toml needs no new environment"

    machine.lock.write_text(f"# changed\n{machine.lock.read_text()}")
    assert "making .venv" in machine.setup().stdout
    assert not marker.exists(), "another lock does"


def test_an_environment_with_the_old_name_loses_it(machine: Machine) -> None:
    project = machine.tree / "pyproject.toml"
    project.write_text(PYPROJECT.replace("millrace-sdk", "millrace"))
    assert machine.setup().returncode == 0
    project.write_text(PYPROJECT)
    assert machine.setup().returncode == 0
    installed = {path.name for path in (machine.tree / ".venv").glob("lib/*/site-packages/millrace*.dist-info")}
    assert installed == {"millrace_sdk-0.dist-info"}


def test_an_interrupted_set_up_starts_over(machine: Machine) -> None:
    lock = machine.lock.read_text()
    machine.lock.write_text(re.sub("sha256:[0-9a-f]{64}", "sha256:" + "0" * 64, lock))
    failed = machine.setup()
    assert failed.returncode == 1
    assert failed.stderr.startswith("setup: pip failed: ERROR")
    assert len(failed.stderr.splitlines()) == 1
    assert (machine.tree / ".venv").exists()

    machine.lock.write_text(lock)
    assert "making .venv" in machine.setup().stdout
    assert machine.setup().stdout == ""


@pytest.mark.parametrize("java", [None, "11.0.2", "1.8.0_402"])
def test_what_is_missing_is_said_in_one_line(machine: Machine, java: str | None) -> None:
    (machine.bin / "java").unlink()
    (machine.bin / "g++").unlink()
    (machine.bin / "iverilog").unlink()
    if java:
        machine.script("java", JAVA.format(java))
    done = machine.setup()
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        "setup: please install Java 17 or later (Debian: openjdk-17-jre-headless), "
        "a C++17 compiler (Debian: g++), Icarus Verilog (Debian: iverilog), then run this again\n"
    )
    assert not (machine.tree / ".venv").exists()


def test_an_old_python_is_not_taken(machine: Machine) -> None:
    machine.script("python3", "#!/bin/sh\nexit 1\n")
    done = machine.setup()
    assert done.returncode == 1
    assert "Python 3.11 or later" in done.stderr


def test_apt_get_brings_what_is_missing(machine: Machine) -> None:
    java, requests = machine.bin / "java", machine.tree.parent / "requests"
    saved = java.read_text()
    java.unlink()
    (machine.tree.parent / "java").write_text(saved)
    shutil.copymode(machine.bin / "g++", machine.tree.parent / "java")
    machine.script("sudo", '#!/bin/sh\nshift\nexec "$@"\n')
    machine.script("apt-cache", "#!/bin/sh\nexit 0\n")
    install = f'case "$*" in *install*) mv {machine.tree.parent}/java {java};; esac'
    machine.script("apt-get", f'#!/bin/sh\necho "$@" >>{requests}\n{install}\n')
    done = machine.setup()
    assert (done.returncode, done.stderr) == (0, "")
    assert "apt-get install openjdk-17-jre-headless" in done.stdout
    updated, installed = requests.read_text().splitlines()
    assert updated.endswith("update")
    assert installed.endswith("openjdk-17-jre-headless")


def test_an_unknown_environment_is_refused(machine: Machine) -> None:
    done = subprocess.run(
        ["bash", machine.tree / "tools" / "setup.sh", "x"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "use main or pynq" in done.stderr
