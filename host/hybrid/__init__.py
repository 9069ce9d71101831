"""CPU and device together: the lookup pipeline, load balancing, and updates of a tree that is on a device too."""
