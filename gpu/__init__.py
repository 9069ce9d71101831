"""GPU devices: kernels written once for CUDA and OpenCL (`kernels/`), and the drivers that run them.

`driver.py` holds the table of units and the launch checks, `device.py` and `runtime.py` the code that both APIs share;
`opencl.py` and `cuda.py` are the devices. `ptxas.py` reports the resource usage of
the compiled CUDA kernels.
"""
