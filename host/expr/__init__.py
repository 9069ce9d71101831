"""The `on` condition: its tree, exact arithmetic, bounds on keys, and the logical plan."""
