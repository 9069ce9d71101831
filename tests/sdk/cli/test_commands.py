"""The command line, as a user meets it: in a pipe, in a terminal, and with mistakes."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from millrace import __version__, registry
from millrace.bench import machine
from millrace.cli import demo_job, doctor, health, main
from millrace.cli.demo import show_demo
from millrace.host.device.contract import DeviceInfo
from millrace.host.runtime import jit, pool
from millrace.window_join import WindowJoin
from tests.watchdog import WATCHDOG

ROOT = Path(__file__).resolve().parents[3]
BOXES = re.compile("[\u2500-\u257f\x1b]")


def millrace(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command with both streams in pipes, and with colours requested, which must have no effect."""
    command = [sys.executable, "-m", "millrace.cli", *arguments]
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": "60", **env}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=WATCHDOG, check=False
    )
    assert "Traceback" not in done.stderr
    assert not BOXES.search(done.stdout + done.stderr)
    return done


def test_version_is_light(tmp_path: Path) -> None:
    code = """
import sys
sys.argv = ["millrace", "--version"]
from millrace.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code
print(sorted({"numba", "pyarrow", "numpy", "polars", "duckdb", "sqlglot"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"millrace {__version__}", "[]"]


def test_help_names_the_commands(tmp_path: Path) -> None:
    done = millrace("--help", cwd=tmp_path)
    assert done.returncode == 0
    assert all(f"\n  {name} " in done.stdout for name in ("devices", "demo", "bench", "doctor"))


def test_no_command_shows_the_help(tmp_path: Path) -> None:
    done = millrace(cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == millrace("--help", cwd=tmp_path).stdout


def test_the_usage_of_bench(tmp_path: Path) -> None:
    assert millrace("bench", "--help", cwd=tmp_path).stdout.startswith("Usage: millrace bench [OPTIONS] [NAME]...\n")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("nosuch", "No such command 'nosuch'; see 'millrace --help'"),
        ("no\nsuch", "'; see 'millrace --help'"),
        ("--nosuch", "No such option: --nosuch"),
        ("demo --rows 0", "'--rows'"),
        ("demo --rows many", "'--rows'"),
        ("demo --rows", "'--rows' requires an argument"),
        ("bench --repeat 0", "'--repeat'"),
        ("devices extra", "(extra); see 'millrace devices --help'"),
    ],
)
def test_a_usage_error_is_one_line(line: str, expected: str, tmp_path: Path) -> None:
    done = millrace(*line.split(" "), cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("argument", ["devices", "--help", "--version"])
def test_output_that_cannot_be_written(argument: str, unbuffered: str, tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "millrace.cli", argument],
            cwd=tmp_path,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 1
    assert done.stderr == "error: output cannot be written: No space left on device\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_gone(unbuffered: str, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "millrace.cli", "devices"]
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(command, cwd=tmp_path, env=env, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert done.returncode == 1
    assert done.stderr == ""


def test_a_stdout_that_is_closed(tmp_path: Path) -> None:
    command = ["sh", "-c", f"'{sys.executable}' -m millrace.cli devices >&-"]
    done = subprocess.run(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("raised", "code", "expected"),
    [
        (typer.Exit(3), 3, ""),
        (typer.Abort(), 130, ""),
        (KeyboardInterrupt(), 130, ""),
        (FileNotFoundError(2, "gone", "x"), 1, "error: [Errno 2] gone: 'x'\n"),
    ],
)
def test_how_a_command_ends(
    raised: BaseException, code: int, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(as_json: bool) -> None:
        raise raised

    monkeypatch.setattr(sys, "argv", ["millrace", "devices"])
    monkeypatch.setattr("millrace.cli.devices.show_devices", fail)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # typer sets its own
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == code
    assert capsys.readouterr() == ("", expected)


def test_a_fault_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(as_json: bool) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(sys, "argv", ["millrace", "devices"])
    monkeypatch.setattr("millrace.cli.devices.show_devices", fail)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    with pytest.raises(ZeroDivisionError):
        main()


def test_devices(tmp_path: Path) -> None:
    done = millrace("devices", cwd=tmp_path)
    assert done.returncode == 0
    head, *lines = done.stdout.splitlines()
    assert head.split() == ["name", "kind", "available", "detail"]
    assert any(line.split()[:3] == ["cpu", "cpu", "yes"] for line in lines)
    found = json.loads(millrace("devices", "--json", cwd=tmp_path).stdout)
    assert len(found) == len(lines)
    assert all(set(info) == {"name", "kind", "available", "detail"} and info["detail"] for info in found)
    # Nothing is wrapped or cut.
    assert all(any(info["detail"] in line for line in lines) for info in found)


def test_devices_in_a_terminal(tmp_path: Path) -> None:
    main, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "millrace.cli", "devices"], cwd=tmp_path, stdout=slave, stderr=slave, stdin=slave
    ) as process:
        os.close(slave)
        shown = b""
        try:
            while piece := os.read(main, 65536):
                shown += piece
        except OSError:  # Linux says so when the other end is closed
            pass
    os.close(main)
    assert process.returncode == 0
    assert BOXES.search(shown.decode())
    assert "cpu" in shown.decode()


def test_doctor(tmp_path: Path) -> None:
    done = millrace("doctor", "--json", cwd=tmp_path)
    assert done.returncode == 0
    found = {check["name"]: check for check in json.loads(done.stdout)}
    wanted = {"python", "core packages", "java", "c++ compiler", "cache folder", "machine", "device cpu"}
    extras = {f"extra {name}" for name in (*health.EXTRAS, "fpga")}
    cuda = {"extra cuda12", "extra cuda13"}  # they exclude each other: one is looked at
    assert wanted | (extras - cuda) <= set(found)
    assert len(cuda & set(found)) == 1
    for check in found.values():
        remedy = check["mend"] or check["detail"].endswith("; use another device")
        assert check["ok"] or remedy, f"{check['name']} is missing and nothing says how to fix it"


def test_doctor_names_no_command_if_there_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    none = DeviceInfo("cuda", "cuda", False, "millrace has no cuda backend")
    monkeypatch.setitem(registry.BACKENDS, "cuda", "millrace.no_such_backend")
    monkeypatch.setattr(registry, "devices", lambda: [none])
    (check,) = health._devices()
    assert not check.ok
    assert check.fix is None
    monkeypatch.setattr(doctor, "checks", lambda: iter([check]))
    doctor.show_health(as_json=False)
    line = capsys.readouterr().out.splitlines()[1]
    assert re.split("  +", line) == ["device cuda", "missing", "-", "millrace has no cuda backend; use another device"]
    doctor.show_health(as_json=True)
    assert json.loads(capsys.readouterr().out)[0]["mend"] is None


def test_doctor_and_bench_share_light_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "cores", lambda: 77)
    assert machine.machine()["cores"] == 77
    monkeypatch.setattr(health, "_packages", lambda *args, needed: health.Check("x", True, ""))
    assert any(", 77 cores, " in check.detail for check in health.checks() if check.name == "machine")
    assert health.package_version is machine.package_version  # type: ignore[attr-defined]
    # A broken core package must not keep the doctor from reporting it.
    code = "import sys, millrace.cli.doctor; print(sorted({'numba', 'pyarrow', 'numpy', 'sqlglot'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


def test_doctor_shows_what_fixes_an_unwritable_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MILLRACE_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr(jit, "_cache_home", jit._cache_home.__wrapped__)
    monkeypatch.setattr(jit, "cache_dir", jit.cache_dir.__wrapped__)
    cache = health._cache()
    assert not cache.ok
    assert not cache.needed
    assert cache.fix is not None
    assert "MILLRACE_CACHE_DIR" in cache.fix


def test_doctor_fails_only_for_what_is_needed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    optional = health.Check("extra", False, "gone", "install it")
    needed = health.Check("core", False, "gone", "install it", needed=True)
    monkeypatch.setattr(doctor, "checks", lambda: iter([optional]))
    assert doctor.show_health(as_json=False) == 0
    monkeypatch.setattr(doctor, "checks", lambda: iter([optional, needed]))
    assert doctor.show_health(as_json=False) == 1
    out = capsys.readouterr().out
    assert "install it" in out
    assert "millrace runs; 1 optional thing(s) missing" in out
    assert "millrace cannot run: 1 needed thing(s) missing" in out


def test_a_package_that_is_broken_or_absent_is_reported() -> None:
    check = health._packages("x", {"numpy": "no_such_module", "no-such-dist": "y"}, "bench", needed=False)
    assert not check.ok
    assert "no-such-dist is not installed" in check.detail
    assert "no_such_module does not import: ModuleNotFoundError" in check.detail
    assert check.fix is not None
    assert "[bench]" in check.fix


def test_doctor_looks_at_what_pyproject_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def names(requirements: list[str]) -> set[str]:
        return {re.match(r"[A-Za-z0-9-]+", line)[0] for line in requirements}  # type: ignore[index]

    assert names(project["dependencies"]) == set(health.CORE)
    extras = project["optional-dependencies"]
    assert {name: names(extras[name]) for name in extras if name not in ("dev", "docs", "fpga")} == {
        name: set(parts) for name, parts in health.EXTRAS.items()
    }


def test_bench_lists_and_refuses(tmp_path: Path) -> None:
    names = [
        *(
            "window_join",
            "join",
            "inequality_join",
            "small",
            "cold",
            "knn",
            "scalegate",
            "live",
            "live_join",
            "structures",
            "lookup",
            "update",
            "pipeline",
            "hardware",
        ),
        *("spark", "spark_stream"),
    ]
    shown = millrace("bench", "--list", cwd=tmp_path).stdout
    assert all(name in shown for name in names)
    assert [one["bench"] for one in json.loads(millrace("bench", "--list", "--json", cwd=tmp_path).stdout)] == names
    done = millrace("bench", "nosuch", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"error: there is no bench 'nosuch'; there are: {', '.join(names)}\n"
    assert list(tmp_path.iterdir()) == []


def test_demo(tmp_path: Path) -> None:
    done = millrace("demo", "--rows", "6000", "--out", "kept", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "kept/demo.json").read_text())
    assert summary["identical"]
    assert {(run["index"], run["device"]) for run in summary["runs"]} >= {("btree", "cpu"), ("scan", "cpu")}
    assert len({(run["pairs"], run["late"], run["held"]) for run in summary["runs"]}) == 1
    result = pq.read_table(tmp_path / "kept/demo.parquet")
    assert result.num_rows == summary["runs"][0]["pairs"] > 1000
    assert summary["runs"][0]["late"] > 0
    assert "r_sensor" in done.stdout
    assert "NO" not in done.stdout
    assert f"\nfirst 5 of {result.num_rows:,} pairs\n" in done.stdout


@pytest.mark.parametrize(
    ("pairs", "expected"), [(0, "no pairs"), (1, "1 pair"), (5, "5 pairs"), (6, "first 5 of 6 pairs")]
)
def test_demo_counts_the_pairs_it_shows(
    pairs: int, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = pa.table({"r_seq": pa.array(range(pairs), pa.int64())})
    monkeypatch.setattr(demo_job, "run", lambda rows, report: demo_job.Outcome(rows, [], result, []))
    assert show_demo(10, tmp_path, as_json=False) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = lines[lines.index(expected) + 1 :]
    assert shown == (["r_seq", *(str(n) for n in range(min(pairs, 5)))] if pairs else [])


def test_demo_json_is_what_is_kept(tmp_path: Path) -> None:
    done = millrace("demo", "--rows", "300", "--json", cwd=tmp_path)
    assert json.loads(done.stdout) == json.loads((tmp_path / "out/demo.json").read_text())


def test_demo_refuses(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = millrace("demo", "--rows", "10", "--out", "file", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: results cannot be written to file")
    assert len(done.stderr.splitlines()) == 1
    assert millrace("demo", "--rows", "0", cwd=tmp_path).returncode == 2


def test_demo_sees_a_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(WindowJoin):
        def push(self, side: str, batch: Any, source: int = 0) -> pa.Table:
            pairs = super().push(side, batch, source)
            return pairs.slice(1) if self.stats["index"] == "scan" else pairs

    monkeypatch.setattr(demo_job, "WindowJoin", Wrong)
    assert show_demo(500, tmp_path, as_json=True) == 1
    summary = json.loads((tmp_path / "demo.json").read_text())
    assert not summary["identical"]
    assert "scan on cpu differs from" in summary["faults"][0]


def test_demo_stops_a_slow_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_job, "SECONDS_PER_RUN", 0.0)
    monkeypatch.setattr(demo_job, "BATCH", 200)
    outcome = demo_job.run(600, lambda what, share: None)
    assert not outcome.faults
    first, *others = outcome.runs
    assert first.complete
    assert others
    assert all(not run.complete and 0 < run.rows_in < first.rows_in and run.identical for run in others)
