"""GPU devices: kernels written once for CUDA and OpenCL (`kernels/`), and the drivers that run them.

`driver.py` holds what every driver needs to know about the units; `opencl.py` is the OpenCL device.
"""
