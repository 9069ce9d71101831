"""HB+-Tree (thesis, appendix A): layouts, build, search, update, journal and file."""
