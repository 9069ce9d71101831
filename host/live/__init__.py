"""What runs behind `mr.LiveJoin`: the queue between callers and the worker thread, and the thread itself."""
