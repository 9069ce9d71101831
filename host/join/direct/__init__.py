"""Joins of two tables without an index structure: one table is bucketed by key, the rows of the other look it up."""
