"""The version and the distribution's name, and nothing else: the build reads them without importing millrace."""

__version__ = "0.1.0"
DISTRIBUTION = "millrace-sdk"
"""The name to install by. (`millrace` on the public package index is another project.)"""
