"""Simulated engines: builders, models and driver, and the devices `rtl` and `hls`."""
