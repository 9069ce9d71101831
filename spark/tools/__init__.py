"""Benchmarks, the demo, and a memory report."""
