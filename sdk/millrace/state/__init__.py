"""Checkpoints of joins: manifests and runs."""
