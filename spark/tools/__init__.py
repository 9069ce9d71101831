"""Benches, the demo, and a memory report."""
