"""Reads the imports of every file and reports those that the architecture forbids.

Packages are the top-level folders: spark -> sdk -> host <- devices. The folders of `host/`, `sdk/millrace/` and
`spark/` are *layers*: a layer imports itself and the layers listed before it in `LAYERS`, no others. Families of join
indexes import `baseline` and no other family. Spark imports a named list of SDK modules. Imports for type checking
count, and so do strings given to `import_module` and `load_module`, except in the SDK's registry, which opens devices
by name.

    python tools/imports.py    # prints the forbidden imports; tests/packaging/test_imports.py runs the same check
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BY_NAME = frozenset({"import_module", "load_module", "__import__"})
"""Functions that import a module by its name."""
PACKAGES = ("host", "gpu", "hw", "hls", "sim", "spark")
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
    TESTS: frozenset({SDK, *PACKAGES}),
    TOOLS: frozenset({SDK, *PACKAGES}),
}
"""Which other packages a package may import."""
HOST_MAY_IMPORT = frozenset({"millrace._version"})
"""The SDK module that the runtime may import: the names of the version and the distribution."""
HOST_THIRD_PARTY = frozenset({"numpy", "numba", "llvmlite", "pyarrow"})
"""What the runtime may import besides the standard library."""

LAYERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "host": (
        *(("base",), ("runtime",), ("kernels",), ("expr",), ("data",), ("device",), ("hbtree",), ("stream",)),
        *(("join",), ("knn",), ("live",), ("hybrid",), ("planner",)),
    ),
    SDK: (
        *(
            ("_version", "errors", "faults", "stats"),
            ("predicate",),
            ("ingest", "registry"),
            ("state", "join_parts", "index_parts"),
        ),
        *(
            (
                "index",
                "window_join",
                "table_join",
                "knn_table",
                "knn_stream",
                "explainer",
                "scalegate",
                "live_join",
                "memory",
            ),
            ("warm",),
            ("bench", "soak"),
            ("cli",),
        ),
    ),
    "spark": (("cluster",), ("plan",), ("exec",), ("stream",), ("api",), ("tools",)),
}
"""The layers of a package in import order. Names in one tuple are one layer; in the SDK they may import each other."""
FAMILIES = ("baseline", "panjoin", "direct", "spo", "pimtree", "scalejoin")
"""Folders of `host/join`: each imports `baseline` and itself."""
SPARK_MAY_IMPORT = frozenset(
    {
        *("millrace", "millrace.errors", "millrace.faults", "millrace.registry"),
        *(
            "millrace.ingest.arguments",
            "millrace.ingest.checks",
            "millrace.ingest.choices",
            "millrace.ingest.columns",
            "millrace.ingest.durations",
            "millrace.ingest.knn_arguments",
        ),
        *(
            "millrace.join_parts.condition_texts",
            "millrace.join_parts.knn_probe",
            "millrace.join_parts.knn_routes",
            "millrace.join_parts.routes",
            "millrace.join_parts.table_probe",
            "millrace.join_parts.table_result",
            "millrace.state.manifest",
        ),
        *("millrace.bench.harness", "millrace.bench.options", "millrace.cli.demo_job"),
    }
)
"""The SDK modules that `spark` may import; `millrace` stands for the public API."""


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


def _base(node: ast.ImportFrom, dotted_package: str) -> str:
    """The absolute module name of a `from … import …` in a file of that package."""
    if not node.level:
        return node.module or ""
    parents = dotted_package.split(".")[: len(dotted_package.split(".")) - node.level + 1]
    return ".".join([*parents, *([node.module] if node.module else [])])


def imports_of(source: str, dotted_package: str) -> Iterator[Import]:
    """Every import in a file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (Import(node.lineno, _base(node, dotted_package), alias.name) for alias in node.names)
        elif isinstance(node, ast.Call) and _called(node) in BY_NAME and node.args:
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield Import(node.lineno, name.value, by_name=True)


def _called(node: ast.Call) -> str:
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def package_of(target: str) -> str:
    """The package of a dotted name below `millrace`; `sdk` if it is in no other package."""
    parts = target.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in PACKAGES else SDK


def path_in_package(target: str) -> tuple[str, ...]:
    """The parts of a dotted name inside its package: `millrace.host.join.matcher` is `join`, `matcher`."""
    return tuple(target.split(".")[1 if package_of(target) == SDK else 2 :])


def fault(package: str, inside: Sequence[str], found: Import) -> str | None:
    """Why a file of this package, at path `inside` below it, must not have this import; None if it may."""
    first = found.target.split(".")[0]
    if first in (*PACKAGES, SDK):
        return f"import this package as millrace.{first}, not as {first}"
    if first != "millrace":
        foreign = package == "host" and first not in HOST_THIRD_PARTY and first not in sys.stdlib_module_names
        return f"host may import only {', '.join(sorted(HOST_THIRD_PARTY))}" if foreign else None
    target = package_of(found.target)
    if target != package:
        if package == "host" and found.target in HOST_MAY_IMPORT:
            return None
        if target not in MAY_IMPORT[package] and not (package == SDK and found.by_name):
            return f"{package} may not import {target}"
        return _spark_fault(found) if package == "spark" else None
    return _layer_fault(package, inside, path_in_package(found.target))


def _spark_fault(found: Import) -> str | None:
    if found.target in SPARK_MAY_IMPORT or (found.module in SPARK_MAY_IMPORT and not found.name.startswith("_")):
        return None
    return "spark may import only the SDK modules that SPARK_MAY_IMPORT names"


def _layer_fault(package: str, inside: Sequence[str], target: Sequence[str]) -> str | None:
    """A layer may import itself and earlier layers; files directly in a package, such as `__init__`, any layer."""
    own, its = layer_of(package, inside), layer_of(package, target)
    if own is None or not target:
        return None
    if its is None:
        return f"{'.'.join(target)} is in no layer of {package}"
    if its > own:
        return f"{inside[0]} may not import {target[0]}, a later layer"
    sibling = its == own and inside[0] != target[0] and package == "host"
    return f"{inside[0]} may not import {target[0]}, in the same layer" if sibling else _family_fault(inside, target)


def _family_fault(inside: Sequence[str], target: Sequence[str]) -> str | None:
    if inside[0] != "join" or target[0] != "join" or len(target) < 2 or target[1] not in FAMILIES:
        return None
    own = inside[1] if len(inside) > 2 else ""
    if target[1] == own or (target[1] == "baseline" and own in FAMILIES):
        return None
    return f"join/{own or inside[-1]} may not import the family {target[1]}"


def layer_of(package: str, inside: Sequence[str]) -> int | None:
    """The position of a module's layer in `LAYERS`; None for files outside of all layers."""
    for number, names in enumerate(LAYERS.get(package, ())):
        if inside and inside[0] in names:
            return number
    return None


def faults_below(root: Path) -> list[str]:
    """All forbidden imports of a tree, as `file:line: import: reason`."""
    return [
        f"{path.relative_to(root)}:{found.line}: {found.target}: {why}"
        for package, path, inside, found in all_imports(root)
        if (why := fault(package, inside, found))
    ]


def all_imports(root: Path) -> Iterator[tuple[str, Path, tuple[str, ...], Import]]:
    """Every import of a tree: package, file, path of the file in the package (without `.py`), and the import."""
    packages = {
        SDK: (root / "sdk" / "millrace", "millrace"),
        TESTS: (root / TESTS, TESTS),
        TOOLS: (root / TOOLS, TOOLS),
    }
    packages |= {package: (root / package, f"millrace.{package}") for package in PACKAGES}
    for package, (folder, dotted_package) in packages.items():
        for path in _sources(folder):
            inside = path.relative_to(folder).with_suffix("").parts
            for found in imports_of(path.read_text(), ".".join([dotted_package, *inside[:-1]])):
                yield package, path, inside, found


def _sources(folder: Path) -> Iterator[Path]:
    """The Python files of a package; symlinks, which are other packages, are not followed."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_symlink():
            continue
        if path.is_dir():
            yield from _sources(path)
        elif path.suffix == ".py":
            yield path


if __name__ == "__main__":
    sys.exit("\n".join(faults_below(ROOT)))
