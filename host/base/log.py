"""The library's logger, `logging.getLogger("millrace")`: silent unless the application configures logging.

WARNING: a join or an index fell back to another device. INFO: choices of index and device, builds of kernels and
simulations, rows dropped as late (once per call, with their number).
"""

from __future__ import annotations

import logging

log = logging.getLogger("millrace")
log.addHandler(logging.NullHandler())
