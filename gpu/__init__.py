"""GPU devices: kernels written once for CUDA and OpenCL (`kernels/`), and the drivers that run them.

`driver.py` holds what every driver needs to know about the units, `device.py` all that a device does whatever its API;
`opencl.py` and `cuda.py` are the devices. `ptxas.py` tells what the CUDA compilers make of the kernels.
"""
