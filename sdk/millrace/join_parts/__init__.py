"""The parts that `mr.join`, `mr.WindowJoin` and Spark share: routes, probes and output."""
