"""One Spark session, on `local[2]`, for all tests of this folder that run in pytest's own process."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession

from millrace.spark.cluster.settings import PREFIX
from tests.spark.sessions import local_session

# By default Spark makes each file of a checkpoint by some Linux commands, a fifth of the time of a streaming test here.
# Jobs of tests/recovery, which are killed, keep the default.
CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
SetSettings = Callable[..., None]
"""`settings(broadcastLimit="0")` sets `spark.millrace.broadcastLimit` until the test ends."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = local_session(spark__sql__streaming__checkpointFileManagerClass=CHECKPOINT_FILES)
    yield session
    session.stop()


@pytest.fixture
def settings(spark: SparkSession) -> Iterator[SetSettings]:
    known: list[str] = []

    def change(**given: str) -> None:
        for name, value in given.items():
            spark.conf.set(PREFIX + name, value)
            known.append(name)

    yield change
    for name in known:
        spark.conf.unset(PREFIX + name)
