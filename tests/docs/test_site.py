"""The site builds without a warning, and its pages open in Chromium; lists of the reference name all there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools import site
from tools.browser import complaints, find_chromium, look_at
from tools.doctest_blocks import with_blocks
from tools.reference_pages import command_line, command_words

import millrace as mr
from tests.packaging.project import ROOT

pytestmark = pytest.mark.xdist_group("site")


def test_the_site_builds_and_opens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site.stage()
    site.build()
    assert find_chromium(), "`make setup` installs Chromium"
    look_at(site.SITE, tmp_path / "pictures", every=False)  # `make docs` opens all
    assert "without a complaint" in capsys.readouterr().out
    assert len(list((tmp_path / "pictures").glob("*.png"))) == 20


def test_every_page_is_in_the_menu() -> None:
    listed = set(re.findall(r'"([\w/.-]+\.md)"', (ROOT / "docs/zensical.toml").read_text()))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert {page for page in pages if not page.startswith("notebook/")} <= listed


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[a](../reference/joins.md#windows)", "[a](../reference/joins.md#windows)"),
        ("[a](../../CHANGELOG.md)", "[a](../changelog.md)"),
        ("[a](../../examples/spark_join.py)", "[a](../examples.md#spark_joinpy)"),
        ("[a](../../host/device/null.py)", "a"),
        ("[a](#here), [b](https://example.org/x.md)", "[a](#here), [b](https://example.org/x.md)"),
        ("```\n[a](nowhere.md)\n```", "```\n[a](nowhere.md)\n```"),
    ],
)
def test_links_lead_from_page_to_page(text: str, wanted: str) -> None:
    assert site.relinked(text, "docs/howto/choose.md", "howto/choose.md") == wanted


def test_a_link_to_nothing_ends_the_build() -> None:
    with pytest.raises(SystemExit, match=r"nowhere\.md, which does not exist"):
        site.relinked("[a](nowhere.md)", "docs/howto/choose.md", "howto/choose.md")


def test_a_plot_gets_a_dark_scheme_once() -> None:
    plot = '<?xml version="1.0"?>\n<svg width="3"><g/></svg>'
    dark = site.with_dark_scheme(plot)
    assert dark.startswith('<?xml version="1.0"?>\n<svg width="3"><style>')
    assert site.with_dark_scheme(dark) == dark


def test_examples_of_docstrings_become_code() -> None:
    assert with_blocks("Says:\n\n>>> 1\n1\n\nMore.") == "Says:\n\n```pycon\n>>> 1\n1\n```\n\nMore."


def test_the_command_line_has_every_command() -> None:
    text = command_line()
    assert ("board", "deploy") in command_words()
    assert all(f"# millrace {' '.join(words)}\n" in text for words in command_words())
    assert text.count("Usage: millrace ") == len(command_words())


def test_what_a_page_does_wrong_is_noticed() -> None:
    address = "http://127.0.0.1:9/"
    events = [
        {"method": "Network.requestWillBeSent", "params": {"request": {"url": "https://fonts.example/a.woff"}}},
        {"method": "Network.requestWillBeSent", "params": {"request": {"url": f"{address}a.css"}}},
        {"method": "Network.responseReceived", "params": {"response": {"status": 404, "url": f"{address}b"}}},
        {"method": "Runtime.exceptionThrown", "params": {"exceptionDetails": {"text": "Uncaught"}}},
        {"method": "Runtime.consoleAPICalled", "params": {"type": "error", "args": [{"value": "bad"}]}},
        {"method": "Runtime.consoleAPICalled", "params": {"type": "log", "args": []}},
        {"method": "Log.entryAdded", "params": {"entry": {"level": "error", "text": "refused"}}},
    ]
    found = complaints(events, address)
    assert len(found) == 5
    assert found[0] == "a request to another machine: https://fonts.example/a.woff"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_every_environment_variable_is_listed() -> None:
    page = set(re.findall(r"`(MILLRACE_[A-Z_]+)`", (ROOT / "docs/reference/environment.md").read_text()))
    library = [path for room in ("host", "gpu", "hw", "sim", "spark", "sdk") for path in (ROOT / room).rglob("*.py")]
    used = {name for path in library for name in re.findall(r'"(MILLRACE_[A-Z_]+[A-Z])"', path.read_text())}
    assert used - {"MILLRACE_BISORT_ABI_H"} <= page


def test_every_error_is_listed() -> None:
    page = (ROOT / "docs/reference/errors.md").read_text()
    errors = [name for name in mr.__all__ if isinstance(getattr(mr, name), type)]
    kinds = [name for name in errors if issubclass(getattr(mr, name), mr.MillraceError) and name != "MillraceError"]
    assert [name for name in kinds if f"| `{name}`" not in page] == []


def test_every_entry_of_stats_is_listed() -> None:
    page = (ROOT / "docs/reference/stats.md").read_text()
    kinds = (mr.JoinStats, mr.LiveStats, mr.GateStats, mr.IndexStats)
    names = {name for kind in kinds for name in kind.__dataclass_fields__ if name != "counters"}
    assert {name for name in names if f"`{name}`" not in page} == set()
