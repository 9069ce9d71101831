"""What `make dist` adds to a build: the list of parts in the wheel, and the checks of contents.

The build itself, and the wheel in empty environments, are tested by `test_wheel.py`; `make dist` tries every Python.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import zipfile
from pathlib import Path

import pytest
from cyclonedx.model.bom import Bom
from tools.dist import add_parts_list, expected_files, find_python, lowest_versions
from tools.sbom import USERS_EXTRAS, parts_list

from millrace import __version__
from tests.packaging.project import ROOT, run
from tests.packaging.test_locks import requirements


def test_the_parts_list_names_what_the_wheel_requires() -> None:
    text = parts_list(ROOT, __version__)
    bom = Bom.from_json(json.loads(text))  # type: ignore[attr-defined]
    assert bom.metadata.component.purl.to_string() == f"pkg:pypi/millrace-sdk@{__version__}"
    required = {part.name for part in bom.components if part.scope.value == "required"}
    assert required == {requirement.name for requirement in requirements()}
    assert {part.name for part in bom.components} == {one.name.lower() for one in requirements(*USERS_EXTRAS)}
    assert all(part.version for part in bom.components if part.name in required)
    assert text == parts_list(ROOT, __version__)


def b64(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def test_the_parts_list_becomes_a_member_of_the_wheel(tmp_path: Path) -> None:
    info = "tiny-1.0.dist-info"
    members = {
        "tiny.py": "",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
        sums = {name: b64(hashlib.sha256(text.encode()).digest()) for name, text in members.items()}
        record = "".join(f"{name},sha256={total},{len(members[name])}\n" for name, total in sums.items())
        archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
    add_parts_list(wheel, "{}")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read(f"{info}/sboms/millrace-sdk.cdx.json") == b"{}"
        assert f"{info}/sboms/millrace-sdk.cdx.json,sha256=" in archive.read(f"{info}/RECORD").decode()


def test_the_package_is_what_git_tracks() -> None:
    names = expected_files()
    assert {"millrace/window_join.py", "millrace/hw/rtl/bisort_merger.sv", "millrace/py.typed"} <= names
    assert not any(name.endswith((".md", ".jsonl")) or "/tests/" in name for name in names)


def test_the_lowest_versions_are_those_of_the_project() -> None:
    assert "numpy==1.26.*" in lowest_versions()
    assert all(text.count("==") == 1 and ">=" not in text for text in lowest_versions())


def test_a_python_is_found_or_not() -> None:
    this = find_python(f"3.{sys.version_info.minor}")
    assert this is not None
    assert run([this, "-V"], ROOT).stdout.startswith(f"Python 3.{sys.version_info.minor}")
    assert find_python("3.99") is None


@pytest.mark.parametrize("name", ["checkout", "setup-python", "setup-java", "cache", "upload-artifact"])
def test_actions_are_pinned_by_commit(name: str) -> None:
    text = "".join(path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml"))
    uses = {line.split("uses:")[1].strip() for line in text.splitlines() if "uses:" in line and f"/{name}@" in line}
    assert len(uses) == 1, "one commit of each action"
    (one,) = uses
    assert len(one.split("@")[1].split(" # v")[0]) == 40
