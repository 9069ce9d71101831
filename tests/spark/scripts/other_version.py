"""Workers whose millrace is not the driver's: `other_version.py FOLDER`, where another is; then workers without any."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import millrace as mr
from millrace import spark as ms
from tests.spark.sessions import local_session


def error_of(call: Callable[[], Any]) -> dict[str, str]:
    try:
        call()
    except Exception as error:
        return {"kind": type(error).__name__, "text": str(error)}
    return {"kind": "", "text": ""}


def errors() -> dict[str, dict[str, str]]:
    # The daemon that forks the workers replaces whatever millrace they would find.
    spark = local_session(spark__python__daemon__module="tests.spark.scripts.other_daemon")
    frame = spark.range(4)
    found = {
        "lookup": error_of(lambda: ms.lookup(frame, mr.OrderedIndex(pa.array([1, 2])), key="id")),
        "join": error_of(lambda: ms.join(frame, frame, on="r.id = s.id")),
    }
    spark.stop()
    return found


def main() -> None:
    folder = Path(sys.argv[1])
    which = folder.parent / "which"
    os.environ["MILLRACE_TEST_OTHER"] = str(which)
    which.write_text(str(folder))
    found = {"other": errors()}
    which.write_text("")
    found["none"] = errors()
    print(json.dumps(found))  # noqa: T201 - what the test reads


if __name__ == "__main__":
    main()
