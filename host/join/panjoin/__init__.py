"""PanJoin: BI-Sort, RaP-Table and WiB+-Tree in a chain of subwindows."""
