"""What `mr.join`, `mr.WindowJoin` and Spark are built of: routes, probes, batch reading, the window engine, output."""
