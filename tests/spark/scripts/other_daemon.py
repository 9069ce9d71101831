"""PySpark's daemon, but with another millrace on the path of the workers that it forks, or with none."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def turn_away() -> None:
    """Put the other folder first, or hide millrace where none is named."""
    folder = Path(os.environ["MILLRACE_TEST_OTHER"]).read_text()
    for name in [name for name in sys.modules if name.partition(".")[0] == "millrace"]:
        del sys.modules[name]
    if folder:
        sys.path.insert(0, folder)
    else:
        sys.modules["millrace"] = None  # type: ignore[assignment]


if __name__ == "__main__":
    from pyspark import daemon

    turn_away()
    daemon.manager()
