"""Tests of a group, or of a file without one, run in one worker: xdist finds the group in their ids."""

from __future__ import annotations

from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import group_of, order_of


def item(path: str, group: str | None = None) -> Any:
    """A test as pytest collects it, as far as its group needs it."""
    mark = None if group is None else pytest.mark.xdist_group(group).mark
    return SimpleNamespace(location=(path, 1, "x"), nodeid=f"{path}::x", get_closest_marker=lambda name: mark)


def test_a_worker_sees_the_group_in_the_id(request: pytest.FixtureRequest) -> None:
    file = PurePosixPath(__file__).stem
    assert request.node.nodeid.endswith(f"@packaging/{file}") == hasattr(request.config, "workerinput")


def test_a_group_is_the_mark_or_the_file() -> None:
    assert group_of(item("tests/sdk/bench/test_bench.py")) == "sdk/bench/test_bench"
    assert group_of(item("tests/spark/api/test_join.py", "spark")) == "spark"


def test_long_groups_come_first() -> None:
    order = [
        item("tests/spark/api/test_join.py", "spark"),
        item("tests/boards/test_deploy_document.py"),
        item("tests/conformance/test_join.py"),
        item("tests/host/base/test_words.py"),
    ]
    assert sorted((order[i] for i in (2, 0, 3, 1)), key=order_of) == order
