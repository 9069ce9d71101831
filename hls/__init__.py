"""The FPGA's units in HLS C++, scripts that build them with Vitis HLS, and a shim with which g++ runs them."""
