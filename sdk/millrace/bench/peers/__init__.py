"""The peers: the same joins in other tools, as a `Session` (streams) or a `Joiner` (tables), and yardsticks."""
