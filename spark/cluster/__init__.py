"""Executors and workers: devices and cards, files, metrics, sessions and checks."""
