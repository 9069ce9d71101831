"""Reduces garbage collection in Python workers: excludes loaded modules from the full collection after every task.

PySpark's daemon calls `gc.collect()` after each task of a reused worker. With pandas, Arrow and Numba loaded, it scans
about 200,000 objects in 75 ms, none of them garbage; a micro-batch of a streaming join has a dozen tasks. `gc.freeze`
excludes the existing objects from collection. Later objects are collected as usual, and objects that are not in a cycle
are freed by their reference count, frozen or not.
"""

from __future__ import annotations

import gc
import sys

_modules = 0
"""Modules loaded at the last freeze."""


def freeze_loaded_objects() -> None:
    """Freeze all objects if modules were loaded since the last call; call it at the start of a task."""
    global _modules
    if len(sys.modules) != _modules:
        _modules = len(sys.modules)
        gc.freeze()
