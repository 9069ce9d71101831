"""Draws traces of the host pipeline as one picture: a row per stage, a bar per bucket, one block of rows per run.

    millrace bench pipeline --case equal --repeat 2 --trace trace.json
    python tools/draw_trace.py trace.json docs/images/pipeline-trace.svg

Plain SVG, no libraries; the same trace gives the same bytes. It shows the buckets of the first `SHOWN` milliseconds,
enough to see the pattern repeat.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SHOWN = 320.0
"""Milliseconds."""
LEFT, WIDTH, BAR, GAP, TOP = 130, 830, 15, 3, 26
COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd")
"""Bucket colours, used in turn; white text is readable on each."""

Event = dict[str, Any]


def draw(trace: dict[str, Any]) -> str:
    """The picture as SVG text."""
    events: list[Event] = trace["traceEvents"]
    runs: dict[str, list[Event]] = {}
    names = {e["pid"]: e["args"]["name"].rpartition(": ")[0] for e in events if e["name"] == "process_name"}
    for event in events:
        if event["ph"] == "X" and event["ts"] < 1000 * SHOWN:
            runs.setdefault(names[event["pid"]], []).append(event)
    body, y = [], 4
    for name, spans in runs.items():
        lines, y = _run(name, spans, y)
        body += lines
    lines = [*_axis(y), *body]
    size = f'width="{LEFT + WIDTH + 10}" height="{y + 34}"'
    style = "<style>text{font:12px sans-serif;fill:#222}.n{font-size:10px;fill:#fff;text-anchor:middle}</style>"
    white = '<rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', style, white, *lines, "</svg>", ""])


def _run(name: str, spans: list[Event], y: int) -> tuple[list[str], int]:
    """The SVG lines of a run, and the y position of the next run."""
    lines = [f'<text x="4" y="{y + 14}" font-weight="bold">{name}</text>']
    y += TOP - 4
    for stage in sorted({event["cat"] for event in spans}):
        rows = sorted({event["tid"] for event in spans if event["cat"] == stage})
        of_stage = [event for event in spans if event["cat"] == stage]
        if max(event["dur"] for event in of_stage) < 10 * SHOWN:
            continue  # less than 1% of the width: the stage had no work
        lines.append(f'<text x="12" y="{y + 12}">{stage}</text>')
        for number, row in enumerate(rows):
            lines += (_bar(event, y + number * (BAR + 1)) for event in of_stage if event["tid"] == row)
        y += len(rows) * (BAR + 1) + GAP
    return lines, y + 8


def _bar(event: Event, y: int) -> str:
    bucket = event["args"]["bucket"]
    start = LEFT + event["ts"] / (1000 * SHOWN) * WIDTH
    width = min(event["dur"] / (1000 * SHOWN) * WIDTH, LEFT + WIDTH - start)
    bar = f'<rect x="{start:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{COLOURS[bucket % len(COLOURS)]}"/>'
    label = f'<text class="n" x="{start + width / 2:.1f}" y="{y + 11}">{bucket}</text>' if width > 12 else ""
    return bar + label


def _axis(y: int) -> Iterator[str]:
    """The time axis in milliseconds, with vertical grid lines."""
    for step in range(5):
        x = LEFT + WIDTH * step / 4
        yield f'<line x1="{x:.0f}" y1="4" x2="{x:.0f}" y2="{y}" stroke="#ddd"/>'
        anchor = "end" if step == 4 else "middle"
        yield f'<text x="{x:.0f}" y="{y + 16}" text-anchor="{anchor}">{SHOWN * step / 4:.0f} ms</text>'


def main(arguments: list[str]) -> int:
    """Draw a trace into a file."""
    if len(arguments) != 2:
        sys.stderr.write("usage: draw_trace.py TRACE.json PICTURE.svg\n")
        return 2
    source, target = map(Path, arguments)
    target.write_text(draw(json.loads(source.read_text(encoding="utf-8"))), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
