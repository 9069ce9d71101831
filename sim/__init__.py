"""RTL simulation: the Verilator builder, the in-process `rtl` device and the loopback board. Empty so far."""
