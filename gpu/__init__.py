"""GPU devices: kernels written once for CUDA and OpenCL, and the drivers that run them. Empty so far."""
