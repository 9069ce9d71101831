"""The version of the package, and nothing else: the build reads it without importing millrace."""

__version__ = "0.1.0"
