"""`make dist`: builds the wheel and the sdist, checks what they hold, and tries the wheel in empty environments.

1. Builds from a copy of the tracked files, so that nothing untracked or left over gets in.
2. Puts the SBOM (`tools/sbom.py`) into the wheel, in `.dist-info/sboms/`.
3. Checks the contents: every tracked file of the package is in, documents, tests and results are out.
4. Installs the wheel into an empty environment of each Python 3.11 to 3.14 that this machine has, with the locked
   versions; and of 3.11 with the lowest versions that are allowed. In each, `millrace verify cpu` must pass, and with
   the locked versions the pages for newcomers must print what they say.

Results are in `dist/`. `--build-only` stops after step 3. Pythons are looked for on the PATH and in pyenv's folder.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tools.imports import PACKAGES
from tools.sbom import parts_list
from tools.walk import walk

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = tuple(f"3.{minor}" for minor in range(11, 15))
LOWEST_ON = "3.11"
"""The only Python for which all of the lowest versions allowed have builds."""
NOT_SHIPPED = (".md",)
SHIPPED_KINDS = (".py", ".cu", ".sv", ".svh", ".cpp", ".h", ".tcl", ".sh", ".lpf", ".toml")
"""Kinds of which the wheel must have at least one: kernels, RTL, HLS, scripts of boards."""
WALKED = ("first-join.md", "first-index.md", "first-live-join.md", "first-neighbours.md")
"""Pages for newcomers that need no extra: each block is run in the empty environment."""
INPUTS = ("pyproject.toml", "LICENSE", "README.md", "sdk", *PACKAGES)


def run(command: Sequence[str | Path], folder: Path) -> str:
    """Run a command in a folder, without this tree on Python's path; ends the program if it fails."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "PYTEST_"))}
    parts = [str(part) for part in command]
    done = subprocess.run(parts, cwd=folder, env=clean, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"dist: {' '.join(parts)} failed\n{done.stdout}\n{done.stderr}")
    return done.stdout


def report(text: str) -> None:
    """One line for whoever waits."""
    sys.stdout.write(f"dist: {text}\n")
    sys.stdout.flush()


# --- Build -----------------------------------------------------------------------------------------------------------


def tracked_files() -> list[str]:
    """The tracked files of a build, links included."""
    return run(["git", "ls-files", "-z", *INPUTS], ROOT).rstrip("\0").split("\0")


def copy_tracked(target: Path) -> None:
    """A copy of the tracked files, links kept as links."""
    for name in tracked_files():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name, follow_symlinks=False)


def add_parts_list(wheel: Path, text: str) -> None:
    """Put an SBOM into a wheel, in the folder that packaging's specification has for it, and renew its record."""
    with tempfile.TemporaryDirectory() as folder:
        run([sys.executable, "-m", "wheel", "unpack", "--dest", folder, wheel], ROOT)
        (unpacked,) = Path(folder).iterdir()
        (info,) = unpacked.glob("*.dist-info")
        (info / "sboms").mkdir()
        (info / "sboms" / "millrace-sdk.cdx.json").write_text(text)
        wheel.unlink()
        run([sys.executable, "-m", "wheel", "pack", "--dest-dir", wheel.parent, unpacked], ROOT)


def build(out: Path) -> tuple[Path, Path]:
    """Build both distributions into `out`, which is emptied first; returns the wheel and the sdist."""
    shutil.rmtree(out, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        copy_tracked(tree)
        run([sys.executable, "-m", "build", "--no-isolation", "--outdir", out, "."], tree)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    add_parts_list(wheel, parts_list(ROOT, wheel.name.split("-")[1]))
    return wheel, sdist


# --- Contents --------------------------------------------------------------------------------------------------------


def expected_files() -> set[str]:
    """The package's files, as the wheel names them."""
    rooms = {name for name in tracked_files() if name.split("/")[0] in PACKAGES}
    own = {name for name in tracked_files() if name.startswith("sdk/") and not (ROOT / name).is_symlink()}
    names = {f"millrace/{name}" for name in rooms} | {name.removeprefix("sdk/") for name in own}
    return {name for name in names if not name.endswith(NOT_SHIPPED)}


def check_wheel(wheel: Path) -> int:
    """Every file of the package once, nothing else, licence, SBOM and command; returns the number of files."""
    names = zipfile.ZipFile(wheel).namelist()
    twice = [name for name, times in Counter(names).items() if times > 1]
    package = {name for name in names if ".dist-info/" not in name}
    lacking, extra = expected_files() - package, package - expected_files()
    unseen = [kind for kind in SHIPPED_KINDS if not any(name.endswith(kind) for name in package)]
    info = {name.split(".dist-info/")[1] for name in names if ".dist-info/" in name}
    wanted = {"licenses/LICENSE", "sboms/millrace-sdk.cdx.json", "entry_points.txt", "RECORD"}
    if twice or lacking or extra or unseen or not wanted <= info:
        raise SystemExit(
            f"dist: {wheel.name}: twice {twice}, lacking {sorted(lacking)}, not of the package {sorted(extra)}, "
            f"no file of {unseen}, no {sorted(wanted - info)}"
        )
    return len(names)


def check_sdist(sdist: Path) -> int:
    """The package as files, not links; no tests and no results; returns the number of files."""
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    names = {member.name.split("/", 1)[1] for member in members if "/" in member.name and member.isfile()}
    links = [member.name for member in members if member.issym() or member.islnk()]
    lacking = {f"sdk/{name}" for name in expected_files()} - names
    foreign = {name for name in names if name.split("/")[0] in ("tests", "benchmarks", "docs", "tools", *PACKAGES)}
    if links or lacking or foreign:
        raise SystemExit(f"dist: {sdist.name}: links {links}, lacking {sorted(lacking)}, foreign {sorted(foreign)}")
    return len(names)


# --- Empty environments ----------------------------------------------------------------------------------------------


def find_python(version: str) -> Path | None:
    """A Python of that version: on the PATH, or in pyenv's folder."""
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    on_path = shutil.which(f"python{version}")
    for candidate in [*([Path(on_path)] if on_path else []), *sorted(kept.glob(f"{version}.*/bin/python{version}"))]:
        done = subprocess.run([candidate, "-c", "import ensurepip, venv"], capture_output=True, check=False)
        if done.returncode == 0:
            return candidate
    return None


def lowest_versions() -> list[str]:
    """The lowest versions that `pyproject.toml` allows, as pip takes them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [re.sub(r">=([\d.]+)$", r"==\1.*", text) for text in project["dependencies"]]


def locked_versions(folder: Path) -> Path:
    """A file of constraints without hashes: the wheel that was just built has none."""
    text = (ROOT / "constraints" / "main.txt").read_text()
    pins = [line.rstrip("\\ ") for line in text.splitlines() if re.match(r"[a-z0-9-]+==", line)]
    path = folder / "constraints.txt"
    path.write_text("\n".join(pins) + "\n")
    return path


def try_wheel(python: Path, wheel: Path, lowest: bool) -> str:
    """Install the wheel into an empty environment and verify the CPU there; returns what was checked."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run([python, "-m", "venv", folder / "venv"], folder)
        bin_folder = folder / "venv" / "bin"
        chosen = [*lowest_versions()] if lowest else ["--constraint", locked_versions(folder)]
        pip: list[str | Path] = [
            bin_folder / "python",
            "-m",
            "pip",
            "--disable-pip-version-check",
            "install",
            "--quiet",
        ]
        run([*pip, *chosen, wheel], folder)
        run([*pip[:-2], "check"], folder)
        run([bin_folder / "millrace", "verify", "cpu", "--out", folder / "results"], folder)
        for page in () if lowest else WALKED:
            wrong = walk(bin_folder / "python", ROOT / "docs" / "start" / page, folder)
            if wrong:
                raise SystemExit(f"dist: {wrong[0]}")
        shown = "import numpy, sys; print(sys.version.split()[0], numpy.__version__)"
        found, numpy = run([bin_folder / "python", "-c", shown], folder).split()
        return f"Python {found}, NumPy {numpy}{', the lowest versions allowed' if lowest else ''}: verified"


def main() -> None:
    """Build, check and try."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--build-only", action="store_true", help="do not install into empty environments")
    parser.add_argument("--python", action="append", choices=VERSIONS, help="try only this Python; may be repeated")
    chosen = parser.parse_args()
    wheel, sdist = build(ROOT / "dist")
    report(f"{wheel.name}: {check_wheel(wheel)} files")
    report(f"{sdist.name}: {check_sdist(sdist)} files")
    tried = 0
    for version in () if chosen.build_only else chosen.python or VERSIONS:
        python = find_python(version)
        if python is None:
            report(f"Python {version}: not on this machine, not tried")
            continue
        report(try_wheel(python, wheel, lowest=False))
        tried += 1
        if version == LOWEST_ON:
            report(try_wheel(python, wheel, lowest=True))
    if not tried and not chosen.build_only:
        raise SystemExit(f"dist: none of Python {', '.join(VERSIONS)} is on this machine")
    for path in (wheel, sdist):
        report(f"sha256 {hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}")


if __name__ == "__main__":
    main()
