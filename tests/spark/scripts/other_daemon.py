"""PySpark's daemon, but with another millrace (or none) on the path of the workers that it forks."""

from __future__ import annotations

import os
import sys


def turn_away() -> None:
    """Put the other folder first, or hide millrace."""
    folder = os.environ["MILLRACE_TEST_OTHER"]
    for name in [name for name in sys.modules if name.partition(".")[0] == "millrace"]:
        del sys.modules[name]
    if folder == os.devnull:
        sys.modules["millrace"] = None  # type: ignore[assignment]
    else:
        sys.path.insert(0, folder)


if __name__ == "__main__":
    from pyspark import daemon

    turn_away()
    daemon.manager()
