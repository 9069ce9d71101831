"""Kernels that several index structures share: sorting, segments, gathering."""
