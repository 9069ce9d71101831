"""The picture of a trace in docs/internals/pipeline.md: its contents, and that the same trace gives the same bytes."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import pytest
from tools import draw_trace

from millrace.host.hybrid.pipeline import Bucket
from millrace.host.hybrid.trace import Traced, events, write

ROOT = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"


def traced() -> tuple[Traced, Traced]:
    """Stages of 5 ms, T0 empty: one bucket at a time, and two."""
    runs = []
    for apart in (25, 10):
        made = [Bucket(number, number, 1, lane=number % 2) for number in range(4)]
        for bucket in made:
            starts = [apart * bucket.number + 5 * stage for stage in range(5)]
            bucket.spans = [(start * 10**6, (start + (5 if start % 5 == 0 else 0)) * 10**6) for start in starts]
            bucket.spans[0] = (0, 0)
        runs.append(made)
    return Traced(runs[0], {}, "one by one"), Traced(runs[1], {}, "side by side")


def test_every_bucket_and_stage_is_a_bar_and_every_run_has_its_name() -> None:
    picture = ET.fromstring(draw_trace.draw(events(*traced())))
    bars = [rect for rect in picture.iter(f"{SVG}rect") if rect.get("x")]
    assert len(bars) == 2 * 4 * 4
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    for label in ("one by one", "side by side", "T1 send", "T2 search", "T3 receive", "T4 leaf search", "0 ms"):
        assert label in texts
    assert "T0 walk" not in texts


def test_bars_of_a_row_do_not_cover_each_other() -> None:
    picture = ET.fromstring(draw_trace.draw(events(*traced())))
    rows: dict[str, list[tuple[float, float]]] = {}
    for rect in picture.iter(f"{SVG}rect"):
        if rect.get("x"):
            start = float(rect.get("x", ""))
            rows.setdefault(rect.get("y", ""), []).append((start, start + float(rect.get("width", ""))))
    for bars in rows.values():
        ends = sorted(bars)
        assert all(first[1] <= second[0] + 0.11 for first, second in pairwise(ends))


def test_the_same_trace_gives_the_same_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "trace.json", *traced())
    for name in ("once.svg", "twice.svg"):
        assert draw_trace.main([str(tmp_path / "trace.json"), str(tmp_path / name)]) == 0
    assert (tmp_path / "once.svg").read_bytes() == (tmp_path / "twice.svg").read_bytes()
    assert draw_trace.main([]) == 2
    assert capsys.readouterr().err.startswith("usage: ")


def test_the_page_shows_the_picture_and_the_picture_shows_all_strategies() -> None:
    page = (ROOT / "docs/internals/pipeline.md").read_text()
    (name,) = re.findall(r"\(\.\./(images/pipeline-[\w-]+\.svg)\)", page)
    texts = {text.text for text in ET.parse(ROOT / "docs" / name).iter(f"{SVG}text")}
    assert {"sequential", "pipelined", "double-buffered", "load-balanced"} <= texts
