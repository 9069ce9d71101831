"""SPO-Join: joins on two order predicates, in tables and in streams."""
