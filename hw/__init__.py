"""FPGA designs and boards: RTL units, board builds, bitstream images and the driver of the engine."""
