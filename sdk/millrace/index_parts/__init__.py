"""The parts of `mr.OrderedIndex`: rows of both layouts, update input, results and files."""
