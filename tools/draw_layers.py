"""Draws the layers of the architecture from the real imports: `make layers`, or `python tools/draw_layers.py`.

A box is a layer (a folder) with the number of its modules. An arc is an import between two layers, thicker if more
modules use it. Plain SVG, no libraries; the same tree gives the same bytes, and a test compares them with
docs/images/layers.svg. What may be imported is in `tools/imports.py`.
"""

from __future__ import annotations

import sys
from collections import Counter
from math import log2
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.imports import LAYERS, ROOT, SDK, Import, all_imports, package_of, path_in_package

PICTURE = ROOT / "docs/images/layers.svg"
PACKAGES = ("spark", SDK, "host")
TITLES = {"spark": "spark/", SDK: "sdk/millrace/", "host": "host/"}
BOX, HEIGHT, GAP, LEFT, ARC, TOP = 210, 26, 10, 16, 110, 44
COLOURS = {"spark": "#e8f0e4", SDK: "#e4ecf7", "host": "#f7efe2"}
Edge = tuple[int, int]


def layers_in_use(root: Path, package: str) -> list[str]:
    """The names on a package's layers that exist, top first, one line each."""
    folder = root / "sdk/millrace" if package == SDK else root / package
    names = [name for layer in LAYERS[package] for name in layer]
    return [name for name in names if (folder / name).is_dir() or (folder / f"{name}.py").is_file()]


def edges_of(root: Path, package: str) -> tuple[list[str], Counter[Edge], Counter[str]]:
    """A package's layers, the imports between them, and how many modules each has."""
    names = layers_in_use(root, package)
    users: set[tuple[int, int, str]] = set()
    for own, path, inside, found in all_imports(root):
        if own != package or inside[0] not in names:
            continue
        target = _target(package, found)
        if target in names and target != inside[0]:
            users.add((names.index(inside[0]), names.index(target), str(path)))
    return names, Counter((a, b) for a, b, _ in users), Counter({name: _modules(root, package, name) for name in names})


def _modules(root: Path, package: str, name: str) -> int:
    """The number of modules of a layer, without `__init__.py`."""
    path = (root / "sdk/millrace" if package == SDK else root / package) / name
    return sum(file.name != "__init__.py" for file in path.rglob("*.py")) if path.is_dir() else 1


def _target(package: str, found: Import) -> str:
    """The layer that an import of the same package leads to; empty if it leads to another package."""
    if not found.target.startswith("millrace.") or package_of(found.target) != package:
        return ""
    inside = path_in_package(found.target)
    return inside[0] if inside else ""


def draw(root: Path) -> str:
    """The picture: a column per package."""
    body: list[str] = []
    x, lowest = LEFT, 0
    for package in PACKAGES:
        names, edges, modules = edges_of(root, package)
        body.append(f'<text x="{x}" y="{TOP - 16}" font-weight="bold">{TITLES[package]}</text>')
        for number, name in enumerate(names):
            y = TOP + number * (HEIGHT + GAP)
            body.append(f'<rect x="{x}" y="{y}" width="{BOX}" height="{HEIGHT}" rx="4" fill="{COLOURS[package]}"/>')
            count = modules[name]
            body.append(f'<text x="{x + 10}" y="{y + 18}">{name}</text>')
            body.append(f'<text x="{x + BOX - 10}" y="{y + 18}" text-anchor="end" fill="#777">{count}</text>')
        body += [_arc(x + BOX, edge, users) for edge, users in sorted(edges.items())]
        lowest = max(lowest, TOP + len(names) * (HEIGHT + GAP))
        x += BOX + ARC
    note = "Lower layers import higher ones, never the other way; arcs: imports, thicker where more modules use them."
    body.append(f'<text x="{LEFT}" y="{lowest + 16}" fill="#777">{note}</text>')
    size = f'width="{x}" height="{lowest + 28}" viewBox="0 0 {x} {lowest + 28}"'
    style = 'font-family="sans-serif" font-size="13"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>', *body, "</svg>", ""])


def _arc(x: int, edge: Edge, users: int) -> str:
    """A curve on the right of the boxes, from the importing layer up to the imported one."""
    here, there = (TOP + number * (HEIGHT + GAP) + HEIGHT // 2 for number in edge)
    out = x + min(ARC - 14, 12 + 7 * abs(edge[0] - edge[1]))
    width = 0.6 + 0.5 * log2(users)
    path = f"M {x} {here} C {out} {here}, {out} {there}, {x} {there}"
    return f'<path d="{path}" fill="none" stroke="#5577aa" stroke-opacity="0.55" stroke-width="{width:.2f}"/>'


if __name__ == "__main__":
    PICTURE.write_text(draw(ROOT))
