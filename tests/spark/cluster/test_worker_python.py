"""Plain sessions in fresh processes: the environment is not activated, and `python3` of the PATH has no packages."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from millrace.spark.cluster import worker_python
from tests.spark.sessions import GROUP, run_script

pytestmark = GROUP
KEPT = ("HOME", "JAVA_HOME", "LANG", "SPARK_SUBMIT_OPTS", "TMPDIR")


@pytest.fixture
def bare(tmp_path: Path) -> tuple[str, dict[str, str]]:
    """A `python3` that sees no site-packages, and an environment whose PATH has it first."""
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec "{getattr(sys, "_base_executable", sys.executable)}" -S "$@"\n')
    python.chmod(0o755)
    java = shutil.which("java")
    folders = [str(tmp_path), *([str(Path(java).parent)] if java else []), "/usr/bin", "/bin"]
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return str(python), {**kept, "PATH": os.pathsep.join(folders), "SPARK_LOCAL_IP": "127.0.0.1"}


def test_importing_before_the_session(bare: tuple[str, dict[str, str]]) -> None:
    assert run_script("plain_session.py", "before", environment=bare[1])["pairs"] == 149


def test_a_local_session_that_is_there_and_a_python_that_lacks_packages(bare: tuple[str, dict[str, str]]) -> None:
    report = run_script("plain_session.py", "after", bare[0], environment=bare[1])
    assert (report["pairs"], report["again"]) == (149, 149)
    assert (report["kind"], report["cause"]) == ("StateError", "None")
    assert "which lacks millrace, pyarrow, pandas, numpy, numba: set PYSPARK_PYTHON to a Python" in report["text"]
    assert sys.executable in report["text"]
    assert "\n" not in report["text"]


def test_a_python_that_does_not_exist(bare: tuple[str, dict[str, str]]) -> None:
    report = run_script("plain_session.py", "after", "/nowhere/python", environment=bare[1])
    assert report["kind"] == "StateError"
    words = 'run /nowhere/python, fail before they do anything (Cannot run program "/nowhere/python"'
    assert words in report["text"]
    assert "\n" not in report["text"]


class Context:
    """What `use_this_python` reads of a Spark context."""

    def __init__(self, master: str) -> None:
        self.master, _, python = master.partition(" with ")
        self.pythonExec = python or "python3"


@pytest.mark.parametrize(
    ("master", "environment", "variable", "python"),
    [
        (None, {}, sys.executable, None),
        (None, {"PYSPARK_PYTHON": "mine"}, "mine", None),
        (None, {"PYSPARK_GATEWAY_PORT": "1"}, None, None),
        ("local[2]", {}, sys.executable, sys.executable),
        ("local[2] with mine", {}, None, "mine"),
        ("local[2]", {"PYSPARK_PYTHON": "mine"}, "mine", "python3"),
        ("yarn", {}, None, "python3"),
    ],
)
def test_what_is_changed(
    master: str | None,
    environment: dict[str, str],
    variable: str | None,
    python: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    context = None if master is None else Context(master)
    monkeypatch.setattr(worker_python, "active_context", lambda: context)
    worker_python.use_this_python()
    assert os.environ.get("PYSPARK_PYTHON") == variable
    assert (None if context is None else context.pythonExec) == python
    monkeypatch.setenv("PYSPARK_PYTHON", "")  # restored at the end, although the call may have set it
