"""How compiled code runs: Numba kernels, intrinsics, threads, memory, locks and fork handling."""
