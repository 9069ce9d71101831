"""Plain names: words that readers of the field would have to look up are not used in names, in any Python file.

The list is the plan's: each had a usual term (helper threads, probes, visible interval, drift, shard, replay, …).
"""

from __future__ import annotations

import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.project import ROOT

PARTS = re.compile(
    r"crew|roused?|rehears\w*|wander\w*|told|settl(e|ed|es|ing)|parcels?|asking|handing|unbroken|reach"
    r"|places?|placed"
)
"""Forbidden as a part of a name: `_crew`, `crewSize` and `the_crew` all hold `crew`."""
NAMES = frozenset({"Questions", "Records", "Site", "Setting", "Run", "Batch", "Job", "whole", "few_partners"})
"""Forbidden as a name: words that stood for several things each."""
ALLOWED = re.compile(r"in_place|replace\w*|place_and_route|placer\w*|nextpnr\w*", re.IGNORECASE)
"""Usual terms that hold a forbidden part."""


def parts_of(name: str) -> list[str]:
    """The words of an identifier, in lower case."""
    return [part.lower() for part in re.split(r"_|(?<=[a-z0-9])(?=[A-Z])", name) if part]


def forbidden(name: str) -> bool:
    """Whether a name is, or holds, a forbidden word."""
    if name in NAMES:
        return True
    rest = ALLOWED.sub("", name)
    return any(PARTS.fullmatch(part) for part in parts_of(rest))


def names_in(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], token.string


def tracked(pattern: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", pattern], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / line for line in listed.splitlines() if (ROOT / line).is_file()]


def test_no_name_uses_an_old_word() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in tracked("*.py")
        if path != Path(__file__).resolve()
        for line, name in names_in(path.read_text())
        if forbidden(name)
    ]
    assert found == []


def test_no_file_is_named_by_an_old_word() -> None:
    files = tracked("*")
    assert len(files) > 300
    assert [str(path.relative_to(ROOT)) for path in files if forbidden(path.stem)] == []


@pytest.mark.parametrize(
    "name", ["_crew", "Crew", "roused", "is_told", "place_of", "PLACES", "Run", "settle_all", "whole"]
)
def test_an_old_word_is_found(name: str) -> None:
    assert forbidden(name)


@pytest.mark.parametrize("name", ["in_place", "update_in_place", "replace", "SortedRun", "run", "batch", "placement"])
def test_usual_terms_are_allowed(name: str) -> None:
    assert not forbidden(name)
