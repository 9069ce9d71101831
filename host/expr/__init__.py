"""The `on` condition: its tree, exact arithmetic, key ranges, and the logical plan."""
