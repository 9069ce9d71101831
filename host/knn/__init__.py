"""Nearest neighbours: an exact index of points for tables and sliding windows (thesis, appendix C: ADS-kNN)."""
