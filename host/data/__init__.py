"""Tuples, windows and payload row stores."""
