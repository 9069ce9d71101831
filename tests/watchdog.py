"""How long a test waits for a thread, a process or a stream that should end by itself."""

from __future__ import annotations

WATCHDOG = 3600
"""Seconds. Only a real hang takes so long, also on a machine that does other work: no test is about this time."""
