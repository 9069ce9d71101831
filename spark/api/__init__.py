"""The public functions: `ms.lookup`, `ms.join`, `ms.window_join`, `ms.knn_join`, `ms.explain` and `ms.splits`."""
