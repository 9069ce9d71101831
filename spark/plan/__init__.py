"""How a join is spread over tasks: columns, samples, routes and the strategy."""
