"""Tuples, windows and row stores."""
