"""The host runtime: order-preserving words, conditions, join indexes, the CPU device and the thread pool.

All modules work on NumPy and Arrow arrays. They import neither the public operators (`millrace.*`) nor the other
devices (`millrace.gpu`, `millrace.hw`, `millrace.sim`), which import this package.
"""
