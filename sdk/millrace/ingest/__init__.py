"""Checks and converts what users pass in, once: tables, columns, durations and arguments."""
