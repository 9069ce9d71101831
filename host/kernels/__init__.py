"""Compiled code that several structures share: sorting, segments, gathering."""
