"""Workers whose millrace is not the driver's: `other_version.py FOLDER`; the null device means no millrace at all."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import millrace as mr
from millrace import spark as ms
from millrace.spark.task import Asked, place_of
from tests.spark.sessions import local_session


def told(call: Callable[[], Any]) -> dict[str, str]:
    try:
        call()
    except Exception as error:
        return {"kind": type(error).__name__, "text": str(error)}
    return {"kind": "", "text": ""}


def main() -> None:
    # The daemon that forks the workers replaces whatever millrace they would find.
    folder = sys.argv[1]
    os.environ["MILLRACE_TEST_OTHER"] = folder
    spark = local_session(spark__python__daemon__module="tests.spark.scripts.other_daemon")
    frame = spark.range(4)
    found = {
        "lookup": told(lambda: ms.lookup(frame, mr.OrderedIndex(pa.array([1, 2])), key="id")),
        "join": told(lambda: ms.join(frame, frame, on="r.id = s.id")),
        "task": told(lambda: place_of(Asked("cpu", None, "0.0.0")))["kind"],
    }
    spark.stop()
    print(json.dumps(found))  # noqa: T201 - what the test reads


if __name__ == "__main__":
    main()
