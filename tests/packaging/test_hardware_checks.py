"""A long check of the hardware is skipped only if it passed with exactly the same sources and tools."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import hardware_checks
from tests.hardware_checks import CHECKS, ROOT, Check, digest_of, mark_unchanged, record_passed


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "checked.json"
    monkeypatch.setattr(hardware_checks, "RECORD", path)
    return path


@pytest.mark.parametrize("name", CHECKS)
def test_the_inputs_and_tests_of_a_check_exist(name: str) -> None:
    check = CHECKS[name]
    assert all(list(ROOT.glob(pattern)) for pattern in check.inputs)
    file, _, function = check.tests.partition("::")
    assert f"def {function}" in (ROOT / file).read_text()


def test_every_change_of_an_input_is_noticed(tmp_path: Path) -> None:
    check = Check("tests/x.py::", ("rtl/*",))
    (tmp_path / "rtl").mkdir()
    (tmp_path / "rtl" / "a.sv").write_text("module a;")
    first = digest_of(check, tmp_path)
    (tmp_path / "rtl" / "a.sv").write_text("module b;")
    second = digest_of(check, tmp_path)
    (tmp_path / "rtl" / "c.sv").write_text("")
    assert len({first, second, digest_of(check, tmp_path)}) == 3


def test_only_checks_that_passed_wholly_are_recorded(record: Path) -> None:
    proofs, synthesis = CHECKS["proofs"].tests, CHECKS["synthesis"].tests
    outcomes = [(f"{proofs}test_a", "passed"), (f"{proofs}test_b", "passed"), ("tests/other.py::test", "failed")]
    assert record_passed([*outcomes, (f"{synthesis}[x]", "passed"), (f"{synthesis}[y]", "failed")]) == ["proofs"]
    assert json.loads(record.read_text()) == {"proofs": digest_of(CHECKS["proofs"])}
    assert record_passed([(f"{proofs}test_a", "skipped")]) == []


def test_a_recorded_check_is_skipped_and_a_changed_one_runs(record: Path) -> None:
    def skipped() -> list[str]:
        marked: list[str] = []
        items = [
            SimpleNamespace(nodeid=check.tests, add_marker=lambda mark, name=name: marked.append(name))
            for name, check in CHECKS.items()
        ]
        mark_unchanged(items)  # type: ignore[arg-type]
        return marked

    assert skipped() == []
    record.write_text(json.dumps({"proofs": digest_of(CHECKS["proofs"]), "synthesis": "of other sources"}))
    assert skipped() == ["proofs"]
