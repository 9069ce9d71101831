"""Runs every example in the documents and in the public modules' docstrings and compares the output."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    "README.md",
    "docs/hardware.md",
    "docs/inequality_joins.md",
    "docs/joins.md",
    "docs/knn.md",
    "docs/live.md",
    "docs/lookups.md",
    "docs/panjoin.md",
    "docs/pipeline.md",
    "docs/updates.md",
]
MODULES = [
    "millrace",
    "millrace.explainer",
    "millrace.index",
    "millrace.join_parts.routes",
    "millrace.knn_stream",
    "millrace.knn_table",
    "millrace.live_join",
    "millrace.registry",
    "millrace.scalegate",
    "millrace.stats",
    "millrace.table_join",
    "millrace.join_parts.table_probe",
    "millrace.window_join",
]
FLAGS = doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("name", DOCUMENTS)
def test_document_examples_run(name: str) -> None:
    result = doctest.testfile(str(ROOT / name), module_relative=False, optionflags=FLAGS)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name: str) -> None:
    result = doctest.testmod(import_module(name), optionflags=FLAGS)
    assert result.attempted > 0
    assert result.failed == 0
