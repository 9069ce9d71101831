"""The pictures of structure are those that `make pictures` draws, and are well-formed."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from tools.draw_pictures import IMAGES, PICTURES


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_up_to_date(name: str) -> None:
    text = PICTURES[name]()
    assert (IMAGES / f"{name}.svg").read_text() == text, "run `make pictures`"
    root = ET.fromstring(text)
    assert root.attrib["aria-label"]
    assert "prefers-color-scheme:dark" in text
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    boxes = [one.attrib for one in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert all(float(b["x"]) + float(b["width"]) <= width for b in boxes)
    assert all(float(b["y"]) + float(b["height"]) <= height for b in boxes)
