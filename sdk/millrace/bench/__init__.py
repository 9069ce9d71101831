"""Benchmarks: our joins and indexes against other tools (peers), measured in the same run. `millrace bench` runs them.

`catalog.py` lists the benches, `harness.py` measures them, `rows.py` makes the result lines, `targets.py` checks the
speed targets. A bench is a module with `cases(options)`; peers are in `peers/`. Loaded only when a bench runs.
"""
