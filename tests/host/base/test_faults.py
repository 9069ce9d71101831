"""Fault points: rules, actions, and a registry that names exactly the points of the code, each once."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import millrace as mr
from millrace.host.base import faults
from millrace.host.base.faults import ARMED, POINTS, fault_data, fault_point, fault_points, injected, is_injected
from millrace.host.device.cpu import CpuDevice
from millrace.host.join.registry import INDEXES

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("host", "gpu", "hw", "sim", "spark", "sdk/millrace")


def used_points() -> Iterator[str]:
    """The points that the code names, found by reading it."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                    first = node.args[0]
                    if node.func.id in ("fault_point", "fault_data") and isinstance(first, ast.Constant):
                        yield str(first.value)


def test_the_registry_names_every_point_of_the_code_once() -> None:
    named = Counter(used_points())
    assert max(named.values()) == 1, "a point has one place"
    by_index = {f"{index}.{what}" for index in INDEXES for what in ("load", "step")}  # the matcher makes these names
    assert set(named) | by_index == set(POINTS)
    assert not set(named) & by_index
    assert [point.name for point in fault_points()] == list(POINTS)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("nowhere=raise", "no such point"),
        ("state.write", "allowed is"),
        ("state.write=explode", "allowed is"),
        ("state.write=raise(3)", "only sleep"),
        ("state.write=sleep", "only sleep"),
        ("state.write=200%raise", "at most 100%"),
        ("state.write=-1*raise", "allowed is"),
        ("cpu.launch=corrupt", "no data pass"),
        ("cpu.launch=short", "no data pass"),
        ("seed=x;cpu.launch=raise", "whole number"),
    ],
)
def test_a_wrong_rule_is_an_argument_error(rule: str, message: str) -> None:
    with pytest.raises(mr.ArgumentError, match=message):
        faults.arm(rule)
    assert not ARMED


def test_the_environment_arms_points() -> None:
    code = "from millrace.host.base.faults import ARMED, fault_point; print(list(ARMED)); fault_point('cpu.alloc')"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "MILLRACE_FAULTS": "cpu.alloc=kill; state.write=5%sleep(1)"},
        capture_output=True,
        text=True,
    )
    assert run.stdout == "['cpu.alloc', 'state.write']\n"
    assert run.returncode == -signal.SIGKILL
    code = "import millrace as mr\ntry:\n    mr.join\nexcept mr.ArgumentError as error:\n    print(error)"
    env = {**os.environ, "MILLRACE_FAULTS": "nowhere=raise"}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert "there is no such point" in run.stdout


@pytest.mark.parametrize(
    ("point", "error"),
    [
        ("cpu.launch", mr.DeviceFault),
        ("state.write", OSError),
        ("memory.allocate", MemoryError),
        ("bisort.step", faults.InjectedFault),
    ],
)
def test_raise_has_the_error_of_a_real_failure_and_oom_a_memory_error(point: str, error: type[Exception]) -> None:
    with injected(f"{point}=raise"), pytest.raises(error, match=f"injected fault at {point}") as raised:
        fault_point(point)
    assert is_injected(raised.value)
    with injected(f"{point}=oom"), pytest.raises(MemoryError):
        fault_point(point)
    fault_point(point)  # disarmed
    assert not is_injected(ValueError("other"))


def test_skip_and_count_say_which_passes_fail() -> None:
    passed = []
    with injected("bisort.step=2+3*raise") as rules:
        for number in range(8):
            try:
                fault_point("bisort.step")
                passed.append(number)
            except faults.InjectedFault:
                continue
    assert passed == [0, 1, 5, 6, 7]
    assert (rules["bisort.step"].hits, rules["bisort.step"].fired) == (8, 3)


def test_a_probability_is_seeded() -> None:
    def failures(seed: int) -> list[bool]:
        found = []
        with injected(f"seed={seed};bisort.step=30%raise"):
            for _ in range(200):
                try:
                    fault_point("bisort.step")
                    found.append(False)
                except faults.InjectedFault:
                    found.append(True)
        return found

    assert failures(1) == failures(1) != failures(2)
    assert 30 < sum(failures(1)) < 90


def test_sleep_waits_and_passes() -> None:
    begin = time.monotonic()
    with injected("live.put=1*sleep(30)"):
        fault_point("live.put")
    assert time.monotonic() - begin >= 0.03


def test_corrupt_flips_one_bit_and_short_drops_the_end() -> None:
    data, array = bytes(100), np.zeros(50, np.uint16)
    with injected("state.read=corrupt"):
        damaged, changed = fault_data("state.read", data), fault_data("state.read", array)
        assert fault_data("state.read", b"") == b""
    assert sum(byte.bit_count() for byte in damaged) == 1
    assert changed.dtype == array.dtype
    assert np.unpackbits(changed.view(np.uint8)).sum() == 1
    assert not array.any()
    with injected("state.read=short"):
        assert fault_data("state.read", data) == data[:50]
    assert fault_data("state.read", data) is data


def test_copies_of_the_cpu_device_fail_and_can_be_made_again() -> None:
    device, data = CpuDevice(1), np.arange(4)
    buffer = device.alloc(4, data.dtype)
    with injected("cpu.write=1*raise;cpu.read=1*raise"):
        with pytest.raises(mr.DeviceFault, match=r"cpu\.write"):
            device.write(buffer, 0, data)
        device.write(buffer, 0, data)
        with pytest.raises(mr.DeviceFault, match=r"cpu\.read"):
            device.read(buffer, 0, 4)
        assert device.read(buffer, 0, 4).tolist() == [0, 1, 2, 3]
