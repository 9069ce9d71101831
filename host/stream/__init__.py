"""From pushed rows to tuples in order: intake, timeline, and the interval of partners that each tuple can see."""
