"""Runs every example in the documents and in the public modules' docstrings and compares the output."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    "README.md",
    "docs/howto/choose.md",
    "docs/index.md",
    "docs/internals/adsknn.md",
    "docs/internals/fpga.md",
    "docs/internals/panjoin.md",
    "docs/internals/pimtree.md",
    "docs/internals/pipeline.md",
    "docs/internals/scalejoin.md",
    "docs/internals/spojoin.md",
    "docs/reference/errors.md",
    "docs/reference/indexes.md",
    "docs/reference/joins.md",
    "docs/reference/live-joins.md",
    "docs/reference/neighbours.md",
    "docs/reference/stats.md",
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
