"""The peers: the same joins by other tools, each as a `Session` (streams) or a `Joiner` (tables), and yardsticks."""
