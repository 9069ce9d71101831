"""Benchmarks: our work and its peers, side by side in one run. `millrace bench` runs them.

`catalog` names the benches; `harness` measures any of them; `rows` makes result lines. A bench is a module with
`cases(options)`; peers live in `millrace.bench.peers`. Everything here is loaded only when a bench runs.
"""
