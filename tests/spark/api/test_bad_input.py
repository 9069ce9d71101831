"""Bad input raises an error on the driver, at the call, with a text that helps."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import millrace as mr
from millrace import spark as ms
from tests.spark.sessions import GROUP, run_script

pytestmark = GROUP


@pytest.fixture
def df(spark: SparkSession) -> DataFrame:
    return spark.sql("SELECT 1L AS k, 'a' AS name, CAST(1 AS DECIMAL(9, 2)) AS price, TIMESTAMP '2024-01-01' AS ts")


INDEX = pa.array([1, 2, 3])
WRONG: dict[str, Any] = {"how": "cross"}
UNKNOWN: dict[str, Any] = {"strategy": "hash"}
Call = Callable[[DataFrame], Any]
BAD: dict[str, tuple[type[mr.MillraceError], str, Call]] = {
    "missing key": (mr.SchemaError, "no column 'q'; the columns are k, name", lambda d: _look(d, key="q")),
    "no key": (mr.ArgumentError, "key is missing", lambda d: _look(d)),
    "key type": (mr.KeyTypeError, "column name of type string", lambda d: _look(d, key="name")),
    "key kind": (mr.KeyTypeError, "column ts of type timestamp", lambda d: _look(d, key="ts")),
    "taken": (mr.SchemaError, "into='name'", lambda d: _look(d, key="k", into="name")),
    "taken in another case": (mr.SchemaError, "a column 'name'", lambda d: _look(d, key="k", into="Name")),
    "one name twice": (
        mr.SchemaError,
        "a column 'a'",
        lambda d: ms.lookup(d, dict.fromkeys(("a", "A"), (mr.OrderedIndex(INDEX), "k"))),
    ),
    "no index": (mr.ArgumentError, "is a int; allowed are", lambda d: ms.lookup(d, 5, key="k")),  # type: ignore[arg-type]
    "no frame": (mr.ArgumentError, "df is a list", lambda d: ms.lookup([1], INDEX, key="k")),  # type: ignore[arg-type]
    "pair": (mr.ArgumentError, "pairs of an index", lambda d: ms.lookup(d, {"v": INDEX})),
    "file": (mr.ArgumentError, "neither the driver nor the worker", lambda d: ms.lookup(d, "/nowhere/x", key="k")),
    "folder": (mr.ArgumentError, "cannot open /: Is a directory", lambda d: ms.lookup(d, "/", key="k")),
    "unsigned values": (
        mr.SchemaError,
        "has the Arrow type uint64, which Spark has no type for",
        lambda d: ms.lookup(d, mr.OrderedIndex(INDEX, INDEX.cast(pa.uint64())), key="k"),
    ),
    "device": (mr.ArgumentError, "device='abacus' is unknown", lambda d: _look(d, key="k", device="abacus")),
    "fallback": (mr.ArgumentError, "fallback='gpu'", lambda d: _look(d, key="k", fallback="gpu")),
    "join column": (mr.SchemaError, "r.q, but r has no such column", lambda d: ms.join(d, d, on="r.q = s.k")),
    "join type": (mr.KeyTypeError, "column r.name has type string", lambda d: ms.join(d, d, on="r.name < s.k")),
    "join families": (mr.PredicateError, "r.name of type string", lambda d: ms.join(d, d, on="r.name = s.k")),
    "join decimal": (mr.KeyTypeError, "column s.price has type decimal", lambda d: ms.join(d, d, on="r.k < s.price")),
    "join text": (mr.PredicateError, "", lambda d: ms.join(d, d, on="r.k LIKE s.k")),
    "join kinds": (mr.MillraceError, "", lambda d: ms.join(d, d, on="r.ts < s.k")),
    "how": (mr.ArgumentError, "how='cross'", lambda d: ms.join(d, d, on="r.k = s.k", **WRONG)),
    "strategy": (mr.ArgumentError, "strategy='hash'", lambda d: ms.join(d, d, on="r.k = s.k", **UNKNOWN)),
    "no range": (
        mr.ArgumentError,
        "bounds a column of r on both ends",
        lambda d: ms.join(d, d, on="r.k < s.k", strategy="range"),
    ),
    "splits": (mr.ArgumentError, "splits: 'a' is no value", lambda d: ms.join(d, d, on="r.k = s.k", splits=[1, "a"])),
    "vast splits": (mr.ArgumentError, "is no value of r.k", lambda d: ms.join(d, d, on="r.k = s.k", splits=[10**400])),
    "splits of times": (mr.ArgumentError, "dates or timestamps", lambda d: ms.join(d, d, on="r.ts = s.ts", splits=[5])),
    "useless splits": (
        mr.ArgumentError,
        "bounds a plain column",
        lambda d: ms.join(d, d, on="r.k * s.k = 4", splits=[1]),
    ),
    "two ways": (
        mr.ArgumentError,
        "leave one of the two out",
        lambda d: ms.join(d, d, on="r.k = s.k", splits=[1], strategy="broadcast"),
    ),
    "splits and shards": (
        mr.ArgumentError,
        "leave splits or shards out",
        lambda d: ms.join(d, d, on="r.k = s.k", splits=[1], shards=3),
    ),
    "explain without a name": (
        mr.ArgumentError,
        "the first argument is a DataFrame; it names the call, 'join' or 'window_join' or 'knn_join' or 'lookup', and "
        'the arguments of that call follow: ms.explain("join", r, s, on="…")',
        lambda d: ms.explain(d, d, on="r.k = s.k"),  # type: ignore[arg-type]
    ),
    "explain of another call": (
        mr.ArgumentError,
        "the first argument is 'sort'",
        lambda d: ms.explain("sort", d),  # type: ignore[arg-type]
    ),
    "explain with a positional window": (
        mr.ArgumentError,
        "ms.explain('window_join', …): too many positional arguments; it takes the arguments of ms.window_join",
        lambda d: ms.explain("window_join", d, d, "r.k = s.k", "1 minute", "ts"),
    ),
    "explain with an unknown argument": (
        mr.ArgumentError,
        "unexpected keyword argument 'window'; it takes the arguments of ms.join",
        lambda d: ms.explain("join", d, d, on="r.k = s.k", window="1 minute"),
    ),
    "frame": (mr.ArgumentError, "s is a Table", lambda d: ms.join(d, pa.table({"k": [1]}), on="r.k = s.k")),
}


def _look(df: DataFrame, **arguments: Any) -> DataFrame:
    return ms.lookup(df, mr.OrderedIndex(INDEX), **arguments)


@pytest.mark.parametrize(
    ("function", "positional"),
    [
        (ms.join, ["r", "s", "on"]),
        (ms.window_join, ["r", "s", "on"]),
        (ms.knn_join, ["r", "s", "on"]),
        (ms.splits, ["r", "s", "on"]),
        (ms.lookup, ["df", "index"]),
    ],
)
def test_only_frames_the_index_and_the_condition_are_positional(
    function: Callable[..., Any], positional: list[str]
) -> None:
    kinds = {name: one.kind for name, one in signature(function).parameters.items()}
    assert [name for name, kind in kinds.items() if kind is Parameter.POSITIONAL_OR_KEYWORD] == positional
    assert {kind for name, kind in kinds.items() if name not in positional} == {Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_reported_early(df: DataFrame, name: str) -> None:
    kind, words, call = BAD[name]
    with pytest.raises(kind) as error:
        call(df)
    assert words in str(error.value)


def test_case_counts_where_spark_says_so(spark: SparkSession, df: DataFrame) -> None:
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        assert _look(df, key="k", into="Name").columns == [*df.columns, "Name"]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_duplicate_names(spark: SparkSession) -> None:
    duplicates = spark.sql("SELECT 1 AS x, 2 AS x")
    with pytest.raises(mr.SchemaError, match="several columns named x"):
        ms.join(duplicates, spark.range(1), on="r.x = s.id")


def test_streams_need_a_window(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load()
    with pytest.raises(mr.ArgumentError, match=r"s is a streaming frame.*ms\.window_join"):
        ms.join(spark.range(1), stream, on="r.id = s.value")


def test_metrics_serve_one_call(spark: SparkSession) -> None:
    metrics = ms.Metrics()
    frame = spark.range(2)
    ms.join(frame, frame, on="r.id = s.id", metrics=metrics)
    with pytest.raises(mr.ArgumentError, match="a new one for each call"):
        ms.join(frame, frame, on="r.id = s.id", metrics=metrics)


def test_another_version_on_the_workers(tmp_path: Path) -> None:
    other = tmp_path / "other" / "millrace"
    shutil.copytree(Path(mr.__file__).parent, other, ignore=shutil.ignore_patterns("__pycache__", "bench", "hw", "hls"))
    (other / "_version.py").write_text('__version__ = "0.0.0"\n')
    report = run_script("other_version.py", str(tmp_path / "other"))
    for call in ("lookup", "join"):
        error = report["other"][call]
        assert error["kind"] == "StateError"
        assert f"has millrace 0.0.0, this driver has {mr.__version__}" in error["text"]
    assert "which lacks millrace: set PYSPARK_PYTHON" in report["none"]["join"]["text"]
