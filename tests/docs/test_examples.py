"""Every example in the documents and in the public modules' docstrings runs and prints what it says."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    "README.md",
    "docs/hardware.md",
    "docs/joins.md",
    "docs/lookups.md",
    "docs/panjoin.md",
    "docs/pipeline.md",
    "docs/updates.md",
]
MODULES = [
    "millrace",
    "millrace.index",
    "millrace.join_parts.routes",
    "millrace.registry",
    "millrace.table_join",
    "millrace.join_parts.table_probe",
    "millrace.window_join",
]
FLAGS = doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_tells_the_truth(name: str) -> None:
    result = doctest.testfile(str(ROOT / name), module_relative=False, optionflags=FLAGS)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_a_docstring_tells_the_truth(name: str) -> None:
    result = doctest.testmod(import_module(name), optionflags=FLAGS)
    assert result.attempted > 0
    assert result.failed == 0
