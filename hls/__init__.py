"""The FPGA units in HLS C++, run here by C simulation. Empty so far."""
