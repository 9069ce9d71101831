"""FPGA designs and boards: the RTL units, board builds, bitstream images and the board driver. Empty so far."""
