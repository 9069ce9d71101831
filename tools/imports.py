"""Reads every file's imports and reports those that the architecture does not allow.

Rooms are the top-level folders: spark -> sdk -> host <- devices. In `host/`, `sdk/millrace/` and `spark/` the folders
are *floors*: a floor imports those above it in its table and itself, never one below or beside it. Families of join
indexes import `baseline` and no other family. Spark imports a named list of SDK modules. Imports for type checking
count, and so do strings given to `import_module`, except in the SDK's registry, which opens devices by name.

    python tools/imports.py    # prints what is wrong; tests/packaging/test_imports.py runs the same check
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("host", "gpu", "hw", "hls", "sim", "spark")
SDK = "sdk"
TESTS = "tests"
TOOLS = "tools"
MAY_IMPORT: dict[str, frozenset[str]] = {
    SDK: frozenset({"host"}),
    "host": frozenset(),
    "gpu": frozenset({"host"}),
    "hw": frozenset({"host"}),
    "sim": frozenset({"hw", "host"}),
    "hls": frozenset(),
    "spark": frozenset({SDK}),
    TESTS: frozenset({SDK, *ROOMS}),
    TOOLS: frozenset({SDK, *ROOMS}),
}
"""Which other rooms a room may import."""
HOST_THIRD_PARTY = frozenset({"numpy", "numba", "llvmlite", "pyarrow"})
"""What the runtime may import besides the standard library."""

FLOORS: dict[str, tuple[tuple[str, ...], ...]] = {
    "host": (
        *(("base",), ("runtime",), ("kernels",), ("expr",), ("data",), ("device",), ("hbtree",), ("stream",)),
        *(("join",), ("knn",), ("live",), ("hybrid",), ("planner",)),
    ),
    SDK: (
        *(("_version", "errors"), ("predicate",), ("ingest", "registry"), ("state", "join_parts", "index_parts")),
        *(("index", "window_join", "table_join"), ("bench",), ("cli",)),
    ),
    "spark": (("cluster",), ("plan",), ("exec",), ("stream",), ("api",), ("tools",)),
}
"""The floors of a room, top first. Names on one line are one floor and may import each other."""
FAMILIES = ("baseline", "panjoin", "direct", "spo", "pimtree", "scalejoin")
"""Folders of `host/join`: each imports `baseline` and itself."""
SPARK_MAY_IMPORT = frozenset(
    {
        *("millrace", "millrace.errors", "millrace.registry", "millrace.table_join"),
        *("millrace.ingest.arguments", "millrace.ingest.checks", "millrace.ingest.durations"),
        *("millrace.join_parts.routes", "millrace.join_parts.table_probe", "millrace.state.manifest"),
        *("millrace.bench.harness", "millrace.bench.options", "millrace.cli.demo_job"),
    }
)
"""The SDK modules that Spark's room uses; `millrace` stands for the public API."""


@dataclass(frozen=True)
class Import:
    """A line that imports `name` from `module` (or the module itself); `by_name`: a string for `import_module`."""

    line: int
    module: str
    name: str = ""
    by_name: bool = False

    @property
    def target(self) -> str:
        """The dotted name; `from a import b` counts as `a.b`, since b may be a module."""
        return f"{self.module}.{self.name}" if self.name else self.module


def _base(node: ast.ImportFrom, package: str) -> str:
    """The absolute name of `from <this> import …` in a file of that package."""
    if not node.level:
        return node.module or ""
    parents = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*parents, *([node.module] if node.module else [])])


def imports_of(source: str, package: str) -> Iterator[Import]:
    """Every import in a file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (Import(node.lineno, _base(node, package), alias.name) for alias in node.names)
        elif isinstance(node, ast.Call) and _called(node) in {"import_module", "__import__"} and node.args:
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield Import(node.lineno, name.value, by_name=True)


def _called(node: ast.Call) -> str:
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def room_of(target: str) -> str:
    """The room that a dotted name below `millrace` is in; what is in no other room is the SDK's."""
    parts = target.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else SDK


def path_in_room(target: str) -> tuple[str, ...]:
    """The parts of a dotted name inside its room: `millrace.host.join.matcher` is `join`, `matcher`."""
    return tuple(target.split(".")[1 if room_of(target) == SDK else 2 :])


def fault(room: str, inside: Sequence[str], found: Import) -> str | None:
    """Why this import may not stand in this room's file, whose path below the room is `inside`; None if it may."""
    first = found.target.split(".")[0]
    if first in (*ROOMS, SDK):
        return f"a room is imported as millrace.{first}, never as {first}"
    if first != "millrace":
        foreign = room == "host" and first not in HOST_THIRD_PARTY and first not in sys.stdlib_module_names
        return f"host may import only {', '.join(sorted(HOST_THIRD_PARTY))}" if foreign else None
    target = room_of(found.target)
    if target != room:
        if target not in MAY_IMPORT[room] and not (room == SDK and found.by_name):
            return f"{room} may not import {target}"
        return _spark_fault(found) if room == "spark" else None
    return _floor_fault(room, inside, path_in_room(found.target))


def _spark_fault(found: Import) -> str | None:
    if found.target in SPARK_MAY_IMPORT or (found.module in SPARK_MAY_IMPORT and not found.name.startswith("_")):
        return None
    return "spark may import only the SDK modules that SPARK_MAY_IMPORT names"


def _floor_fault(room: str, inside: Sequence[str], target: Sequence[str]) -> str | None:
    """A floor may import the floors above it and itself; files at the top of a room, such as `__init__`, any."""
    own, its = floor_of(room, inside), floor_of(room, target)
    if own is None or not target:
        return None
    if its is None:
        return f"{'.'.join(target)} is on no floor of {room}"
    if its > own:
        return f"{inside[0]} may not import {target[0]}, a floor below it"
    beside = its == own and inside[0] != target[0] and room == "host"
    return f"{inside[0]} may not import {target[0]}, beside it" if beside else _family_fault(inside, target)


def _family_fault(inside: Sequence[str], target: Sequence[str]) -> str | None:
    if inside[0] != "join" or target[0] != "join" or len(target) < 2 or target[1] not in FAMILIES:
        return None
    own = inside[1] if len(inside) > 2 else ""
    if target[1] == own or (target[1] == "baseline" and own in FAMILIES):
        return None
    return f"join/{own or inside[-1]} may not import the family {target[1]}"


def floor_of(room: str, inside: Sequence[str]) -> int | None:
    """The number of the floor that a module of a room is on, from the top; None for files outside of all."""
    for number, names in enumerate(FLOORS.get(room, ())):
        if inside and inside[0] in names:
            return number
    return None


def faults_below(root: Path) -> list[str]:
    """All wrong imports of a tree, as `file:line: import: reason`."""
    return [
        f"{path.relative_to(root)}:{found.line}: {found.target}: {why}"
        for room, path, inside, found in all_imports(root)
        if (why := fault(room, inside, found))
    ]


def all_imports(root: Path) -> Iterator[tuple[str, Path, tuple[str, ...], Import]]:
    """Every import of a tree: the room, the file, the file's path inside the room (without `.py`), and the import."""
    rooms = {SDK: (root / "sdk" / "millrace", "millrace"), TESTS: (root / TESTS, TESTS), TOOLS: (root / TOOLS, TOOLS)}
    rooms |= {room: (root / room, f"millrace.{room}") for room in ROOMS}
    for room, (folder, package) in rooms.items():
        for path in _sources(folder):
            inside = path.relative_to(folder).with_suffix("").parts
            for found in imports_of(path.read_text(), ".".join([package, *inside[:-1]])):
                yield room, path, inside, found


def _sources(folder: Path) -> Iterator[Path]:
    """The Python files of a room; links, which are other rooms, are not followed."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_symlink():
            continue
        if path.is_dir():
            yield from _sources(path)
        elif path.suffix == ".py":
            yield path


if __name__ == "__main__":
    sys.exit("\n".join(faults_below(ROOT)))
