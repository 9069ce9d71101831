"""Millrace for Spark: lookups and joins on DataFrames, over the public API. Empty so far."""
