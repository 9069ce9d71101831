"""Spares a Python worker the search of what it has loaded: Spark collects garbage in full after every task.

Pyspark's daemon calls `gc.collect()` whenever a worker that is kept has done a task. With pandas, Arrow and Numba
loaded some 200,000 objects are looked at, none of them garbage, and a micro-batch of a streaming join is a dozen tasks.
`gc.freeze` takes what is there out of the collector's sight; what comes later is collected as ever, and whatever is not
part of a cycle is freed when it is let go of, frozen or not.
"""

from __future__ import annotations

import gc
import sys

_modules = 0
"""How many were loaded when we last froze."""


def settle() -> None:
    """To be called as a task begins, when little is there but what was loaded; does nothing unless more was."""
    global _modules
    if len(sys.modules) != _modules:
        _modules = len(sys.modules)
        gc.freeze()
