"""Simulated engines: their builds and models, the devices `rtl` and `hls`, and simulated boards."""
