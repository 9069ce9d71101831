"""Which index a join uses, and why."""
