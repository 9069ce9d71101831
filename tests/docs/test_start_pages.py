"""A newcomer's walk: every block of the pages in docs/start is run in a new process, and prints what the page says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tools.walk import blocks_of, walk

from tests.packaging.project import ROOT

PAGES = sorted(path.name for path in (ROOT / "docs" / "start").glob("first-*.md"))


@pytest.mark.parametrize("name", PAGES)
def test_a_newcomer_sees_what_the_page_says(name: str, tmp_path: Path) -> None:
    assert walk(sys.executable, ROOT / "docs" / "start" / name, tmp_path) == []


def test_the_walk_notices_a_difference(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1)\n```\n\n```text\n2\n```\n\n```python\nx = 3\n```\n")
    assert blocks_of(page.read_text()) == [("print(1)\n", "2\n"), ("x = 3\n", "")]
    (report,) = walk(sys.executable, page, tmp_path)
    assert "instead of" in report
    page.write_text("```python\nraise SystemExit(4)\n```\n")
    assert "ended with 4" in walk(sys.executable, page, tmp_path)[0]


def test_all_start_pages_are_here() -> None:
    assert [name.removeprefix("first-").removesuffix(".md") for name in PAGES] == [
        "fpga",
        "index",
        "join",
        "live-join",
        "neighbours",
        "spark-job",
    ]
