"""Checkpoints: manifests and runs."""
