"""ScaleJoin: the nested loop, shared among threads that each hold every n-th tuple of the windows."""
