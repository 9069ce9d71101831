"""Reads every file's imports and tells the ones that point the wrong way: spark -> sdk -> host <- devices.

A room is named by the first part after `millrace.`; what is not a room is the SDK. Imports for type checking
count, and so do names given to `import_module`, save in the SDK, whose registry opens devices by name.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.packaging.project import ROOMS

SDK = "sdk"
TESTS = "tests"
# Which rooms of Millrace a room may import, itself aside.
MAY_IMPORT: dict[str, frozenset[str]] = {
    SDK: frozenset({"host"}),
    "host": frozenset(),
    "gpu": frozenset({"host"}),
    "hw": frozenset({"host"}),
    "sim": frozenset({"hw", "host"}),
    "hls": frozenset(),
    "spark": frozenset({SDK}),
    TESTS: frozenset({SDK, *ROOMS}),
}
# What the runtime may import besides the standard library.
HOST_THIRD_PARTY = frozenset({"numpy", "numba", "llvmlite", "pyarrow"})


@dataclass(frozen=True)
class Import:
    """A dotted name that a line imports; `by_name` when it is a string given to `import_module`."""

    line: int
    target: str
    by_name: bool = False


def _base(node: ast.ImportFrom, package: str) -> str:
    """The absolute name of `from <this> import …` in a file of that package."""
    if not node.level:
        return node.module or ""
    parents = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*parents, *([node.module] if node.module else [])])


def imports_of(source: str, package: str) -> Iterator[Import]:
    """Every import in a file; `from a import b` counts as `a.b`, since b may be a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (Import(node.lineno, f"{_base(node, package)}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and _called(node) in {"import_module", "__import__"} and node.args:
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield Import(node.lineno, name.value, by_name=True)


def _called(node: ast.Call) -> str:
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def fault(room: str, found: Import) -> str | None:
    """Why this import may not stand in a file of this room; None if it may."""
    first, *rest = found.target.split(".")
    if first in (*ROOMS, SDK):
        return f"a room is imported as millrace.{first}, never as {first}"
    if first != "millrace":
        foreign = room == "host" and first not in HOST_THIRD_PARTY and first not in sys.stdlib_module_names
        return f"host may import only {', '.join(sorted(HOST_THIRD_PARTY))}" if foreign else None
    target = rest[0] if rest and rest[0] in ROOMS else SDK
    if target not in MAY_IMPORT[room] | {room} and not (room == SDK and found.by_name):
        return f"{room} may not import {target}"
    if room == "spark" and target == SDK and any(part.startswith("_") for part in rest):
        return "spark may import only what is public"
    return None


def faults_below(root: Path) -> list[str]:
    """All wrong arrows of a tree, as `file:line: import: reason`."""
    rooms = {SDK: (root / "sdk" / "millrace", "millrace"), TESTS: (root / TESTS, TESTS)}
    rooms |= {room: (root / room, f"millrace.{room}") for room in ROOMS}
    faults = []
    for room, (folder, package) in rooms.items():
        for path in _sources(folder):
            inner = ".".join([package, *path.relative_to(folder).parent.parts])
            for found in imports_of(path.read_text(), inner):
                if why := fault(room, found):
                    faults.append(f"{path.relative_to(root)}:{found.line}: {found.target}: {why}")
    return faults


def _sources(folder: Path) -> Iterator[Path]:
    """The Python files of a room; links, which are other rooms, are not followed."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_symlink():
            continue
        if path.is_dir():
            yield from _sources(path)
        elif path.suffix == ".py":
            yield path
