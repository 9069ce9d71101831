"""The soak: all operators on all devices, for minutes or hours, with random sizes, late data, faults and kills.

`millrace soak` runs it (`runner.py`); docs/howto/failures.md explains it. Every output is compared with a brute force
in NumPy (`reference.py`) that shares no code with the operators.
"""
