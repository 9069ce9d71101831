"""The recorded results of board builds: `hw/boards/<name>/build.json`, and the table in docs/reference/boards.md.

`millrace image build <name> --write` writes both; a test builds again and compares. Limit: works only in a checkout,
because a wheel contains no documents.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from millrace.hw.catalog import HW, Board, boards
from millrace.hw.image import Image

DOCUMENT = HW.parent / "docs" / "reference" / "boards.md"
BEGIN, END = "<!-- builds: made by `millrace image build ulx3s --write` -->\n", "<!-- builds: end -->\n"
AVAILABLE = {"LFE5U-85F-6BG381": {"luts": 83640, "registers": 83640, "block_rams": 208, "multipliers": 156}}
"""The resources of a part."""


def path(board: Board) -> Path:
    """The path of a board's record."""
    return board.folder / "build.json"


def read(board: Board) -> dict[str, Any]:
    """A board's record."""
    found: dict[str, Any] = json.loads(path(board).read_text(encoding="utf-8"))
    return found


def write(board: Board, image: Image) -> None:
    """Record the build report of an image."""
    manifest = image.manifest
    record = {"report": dict(manifest.report), "tools": dict(manifest.tools), "clock_mhz": manifest.clock_hz / 1e6}
    path(board).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    DOCUMENT.write_text(with_table(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")


def with_table(text: str) -> str:
    """Replace the table between the markers of the document."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


def table() -> str:
    """Markdown: a row for each board with a recorded build."""
    lines = ["", "| board | part | clock | reaches | LUTs | registers | block RAMs | made by |"]
    lines.append("| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |")
    for board in boards().values():
        if path(board).exists():
            lines.append(_row(board, read(board)))
    return "\n".join([*lines, "", ""])


def _row(board: Board, record: dict[str, Any]) -> str:
    report, total = record["report"], AVAILABLE[board.part]
    used = [f"{report[name]:,.0f} ({report[name] / total[name]:.0%})" for name in ("luts", "registers", "block_rams")]
    tools = ", ".join(f"{name} {version}" for name, version in record["tools"].items())
    clocks = f"{record['clock_mhz']:g} MHz | {report['fmax_mhz']:.1f} MHz"
    return f"| `{board.name}` | {board.part} | {clocks} | {' | '.join(used)} | {tools} |"
