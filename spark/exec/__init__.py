"""Runs batch joins: broadcast or shuffle, and the work of each task."""
