"""Joins of whole tables without an index structure: one table is bucketed by key, the other looks its partners up."""
