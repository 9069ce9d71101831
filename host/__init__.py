"""The host runtime: order-preserving words, conditions, join indexes, the CPU device and the thread pool.

Everything here works on NumPy and Arrow arrays and knows nothing of the public operators above it (`millrace.*`)
nor of the other devices beside it (`millrace.gpu`, `millrace.hw`, `millrace.sim`), which import this room.
"""
