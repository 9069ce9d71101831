"""The picture of the layers in docs/architecture.md is the one that the imports give."""

from __future__ import annotations

from tools.draw_layers import PICTURE, draw, edges_of
from tools.imports import ROOT


def test_the_picture_is_up_to_date() -> None:
    assert PICTURE.read_text() == draw(ROOT), "the imports have changed: run `make layers`"


def test_arcs_are_imports() -> None:
    names, edges, modules = edges_of(ROOT, "host")
    assert names[0] == "base"
    assert all(modules[name] for name in names)
    assert all(importer > imported for importer, imported in edges)
    assert (names.index("runtime"), names.index("base")) in edges
