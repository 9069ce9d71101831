"""No unit uses over 10% more resources than recorded in `hw/resources.json`, and the documents show the record.

The test maps the units again for all targets. After an intended growth, `millrace hw synth --write` updates the record
and the tables.
"""

from __future__ import annotations

import pytest

from millrace.hw import resources, synth
from millrace.hw.synth import Design

GROWTH = 1.1
SLACK = 8
"""Tolerance in cells for small units, for random variation of the mapper."""


@pytest.mark.parametrize("target", synth.TARGETS)
@pytest.mark.parametrize("design", synth.units(), ids=str)
def test_has_not_grown(design: Design, target: str) -> None:
    recorded = {(cost.design, cost.lanes, cost.target): cost for cost in resources.read().costs}
    before = recorded[design.top, design.lanes, target]
    now = synth.cost(design, target)
    for name in ("luts", "registers", "brams"):
        least, most = getattr(before, name), getattr(now, name)
        assert most <= max(GROWTH * least, least + SLACK * (name != "brams")), f"{name}: {least} recorded, {most} now"


def test_documents_show_the_record() -> None:
    text = resources.DOCUMENT.read_text(encoding="utf-8")
    assert text == resources.with_tables(text, resources.tables(resources.read()))
