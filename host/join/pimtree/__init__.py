"""Index-based window join tuple by tuple (PIM-Tree): `pim`, `im` and `chain`."""
