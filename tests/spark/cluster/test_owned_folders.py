"""The folder of lists belongs to this user alone: what is listed there is removed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

import millrace as mr
from millrace.spark.cluster.owned_folders import lists_folder


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = lists_folder()
    assert made.stat().st_mode & 0o777 == 0o700
    assert lists_folder() == made
    monkeypatch.setattr(os, "getuid", lambda: made.stat().st_uid + 1)
    (tmp_path / f"millrace-spark-{made.stat().st_uid + 1}").mkdir()
    with pytest.raises(mr.StateError, match="belongs to another user"):
        lists_folder()


def test_a_link_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"millrace-spark-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(mr.StateError, match="is a link"):
        lists_folder()
