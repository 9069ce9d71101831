"""Every example runs as it is, on the session that is there."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.sessions import GROUP

pytestmark = GROUP
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WORDS = {
    "spark_lookup.py": ["site 0", "batch 0:"],
    "spark_join.py": ["strategy    broadcast", "s has about 2,000", "r_null_keys", "readings are near no limit"],
    "spark_simulated.py": ["cpu: ", "rtl: "],
}


def test_all_are_here() -> None:
    assert {path.name for path in EXAMPLES.glob("spark_*.py")} == set(WORDS)


@pytest.mark.parametrize("name", WORDS)
def test_an_example_runs(spark: SparkSession, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    output = capfd.readouterr().out
    assert all(words in output for words in WORDS[name]), output
