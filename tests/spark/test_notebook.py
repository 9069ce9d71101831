"""The notebook runs from its first cell to its last, as it is, on the session that is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.sessions import GROUP

pytestmark = GROUP
NOTEBOOK = Path(__file__).resolve().parents[2] / "examples/streaming.ipynb"


def test_the_notebook_runs(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    for cell in cells:
        assert cell["outputs"] == [], "outputs are not kept: they would not be those of this version"
        exec(compile("".join(cell["source"]), f"{NOTEBOOK.name}#{cell['id']}", "exec"), names)
    output = capfd.readouterr().out
    assert "store-one" in output
    assert "every shard sees all rows" in output
    assert "pairs found" in output
    assert "of them different" in output
