"""The peers: the same joins done with other tools, each as a `millrace.bench.stream.Session`."""
