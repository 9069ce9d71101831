"""Plans how a join is distributed over tasks: columns, samples, routes and the strategy."""
