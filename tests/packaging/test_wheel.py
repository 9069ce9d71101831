"""The wheel and the sdist build, hold every file once, and work in empty environments, with NumPy 1.26 and 2.

The build runs in a copy of the tree with one extra file of every kind that ships, so that kinds which no package uses
yet are tested too. The wheel is built from the sdist, so it also shows what the sdist lacks.
"""

from __future__ import annotations

import sys
import tarfile
import tomllib
import venv
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tools.imports import PACKAGES

from tests.packaging.project import ROOT, Pin, copy_tree, locked, run

# One worker runs all of these: the build and the environments are created once.
pytestmark = pytest.mark.xdist_group("wheel")

NOT_SHIPPED = {".md"}
PROBES = (
    "gpu/kernels/probe.cu",
    "gpu/kernels/probe.h",
    "hls/probe.cpp",
    "hls/include/probe.hpp",
    "hw/rtl/probe.sv",
    "hw/rtl/probe.svh",
    "sim/probe.vlt",
    "hw/boards/probe/build.tcl",
    "hw/boards/probe/board.toml",
)

SMOKE = """
import sys
import numpy, pyarrow as pa
import millrace as mr
assert "site-packages" in mr.__file__, mr.__file__
assert numpy.__version__.startswith(sys.argv[1]), numpy.__version__

r, s = pa.table({"x": [1, 5, 9]}), pa.table({"x": [2, 8, None]})
pairs = mr.join(r, s, on="abs(r.x - s.x) <= 1")
assert pairs.to_pydict() == {"r_seq": [0, 2], "s_seq": [0, 1], "r_x": [1, 9], "s_x": [2, 8]}, pairs

for index in ("scan", "btree"):
    join = mr.WindowJoin(on="abs(r.x - s.x) <= 1", window="2 rows", index=index, device="cpu")
    assert join.push("r", r).num_rows == 0
    pairs = join.push("s", s)  # r's first row has left its window
    assert pairs.to_pydict() == {"r_seq": [2], "s_seq": [1], "r_x": [9], "s_x": [8]}, pairs
    assert join.close().num_rows == 0
"""


@dataclass(frozen=True)
class Built:
    """The build results and their source tree."""

    tree: Path
    wheel: Path
    sdist: Path


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    tree = copy_tree(tmp_path_factory.mktemp("build") / "millrace")
    for name in PROBES:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("")
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist", "."], tree)
    (wheel,), (sdist,) = (tree / "dist").glob("*.whl"), (tree / "dist").glob("*.tar.gz")
    assert wheel.name.startswith("millrace_sdk-")
    assert sdist.name.startswith("millrace_sdk-")
    return Built(tree, wheel, sdist)


def shipped(folder: Path) -> Iterator[Path]:
    """Every file of the package, following the symlinks."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield from () if path.name == "__pycache__" or path.suffix == ".egg-info" else shipped(path)
        elif path.suffix not in NOT_SHIPPED:
            yield path


def test_the_links_are_the_packages() -> None:
    links = {p.name: p.readlink().as_posix() for p in (ROOT / "sdk" / "millrace").iterdir() if p.is_symlink()}
    assert links == {package: f"../../{package}" for package in PACKAGES}


def test_the_wheel_holds_every_file_once(built: Built) -> None:
    names = zipfile.ZipFile(built.wheel).namelist()
    package = built.tree / "sdk"
    wanted = {path.relative_to(package).as_posix() for path in shipped(package / "millrace")}
    assert {f"millrace/{name}" for name in PROBES} | {"millrace/py.typed"} <= wanted
    assert {name for name, times in Counter(names).items() if times > 1} == set()
    assert {name for name in names if ".dist-info/" not in name} == wanted


def test_the_wheel_has_licence_and_command(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        meta = {name.split(".dist-info/")[1]: name for name in wheel.namelist() if ".dist-info/" in name}
        assert "licenses/LICENSE" in meta
        assert "millrace = millrace.cli:main" in wheel.read(meta["entry_points.txt"]).decode()
        assert "millrace.devices" not in wheel.read(meta["entry_points.txt"]).decode()


def test_the_sdist_holds_files_not_links(built: Built) -> None:
    with tarfile.open(built.sdist) as sdist:
        members = sdist.getmembers()
    assert [m.name for m in members if m.issym() or m.islnk()] == []
    names = [m.name.split("/", 1)[1] for m in members if "/" in m.name]
    assert {f"sdk/millrace/{name}" for name in PROBES} <= set(names)
    assert {name.split("/")[0] for name in names}.isdisjoint(PACKAGES)


def empty_environment(folder: Path) -> Path:
    """An environment without even pip; returns its Python."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    return folder / "bin" / "python"


def pip_install(python: Path, pins: Iterable[Pin], *what: str | Path) -> None:
    """Install into that environment, with the pinned versions."""
    constraints = python.parents[1] / "constraints.txt"
    lines = (f"{pin.name}=={pin.version}{f' ; {pin.marker}' if pin.marker else ''}\n" for pin in pins)
    constraints.write_text("".join(lines))
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    options = ["--quiet", "--no-compile", "--no-build-isolation", "--constraint", str(constraints)]
    run([*pip, "install", *options, *what], python.parents[1])


def check_it_works(python: Path, numpy: str, folder: Path) -> None:
    """Run the package and its command outside of the source tree."""
    run([python, "-c", SMOKE, numpy], folder)
    command = python.parent / "millrace"
    version = run([python, "-c", "import millrace; print(millrace.__version__)"], folder).stdout.strip()
    assert run([command, "--version"], folder).stdout.split()[-1] == version
    assert "cpu" in run([command, "devices"], folder).stdout


def test_the_wheel_works_with_the_lock(built: Built, tmp_path: Path) -> None:
    python = empty_environment(tmp_path / "venv")
    pip_install(python, locked("main"), built.wheel)
    check_it_works(python, "2.", tmp_path)


def test_the_sdist_works_with_numpy_1_26(built: Built, tmp_path: Path) -> None:
    python = empty_environment(tmp_path / "venv")
    pip_install(python, locked("pynq"), "setuptools")
    pip_install(python, locked("pynq"), "numpy==1.26.*", built.sdist)
    check_it_works(python, "1.26.", tmp_path)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the lowest versions allowed have no builds for this Python")
def test_the_wheel_works_with_the_lowest_versions_it_allows(built: Built, tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lowest = [f"{requirement.replace('>=', '==')}.*" for requirement in project["dependencies"]]
    assert all(requirement.count("==") == 1 for requirement in lowest)
    python = empty_environment(tmp_path / "venv")
    pip_install(python, [], *lowest, built.wheel)
    check_it_works(python, "1.26.", tmp_path)
