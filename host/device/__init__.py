"""The device contract, the table of units, the CPU device, and devices for tests."""
