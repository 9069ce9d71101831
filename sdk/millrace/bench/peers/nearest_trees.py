"""Peers of nearest-neighbour joins: SciPy's `cKDTree`, pykdtree and scikit-learn, each with all cores.

They return distances and row numbers in the order of the queries they are given. None of them can change its points: a
stream rebuilds its tree.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from millrace.bench.harness import PeerMissing
from millrace.host.base.install import install_command
from millrace.host.runtime.pool import cores

Points = npt.NDArray[np.float64]
Search = Callable[[Points, int], npt.NDArray[np.int64]]
"""Returns the row numbers of the k nearest points of each query, nearest first."""


def _module(name: str, package: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise PeerMissing(f"{package} is not installed: {install_command('bench')}") from error


def scipy_tree(points: Points) -> Search:
    """SciPy's tree; searched by all cores."""
    tree = _module("scipy.spatial", "scipy").cKDTree(points)

    def search(queries: Points, k: int) -> npt.NDArray[np.int64]:
        found = tree.query(queries, k=k, workers=-1)[1]
        return np.asarray(found, np.int64).reshape(len(queries), k)

    return search


def pykdtree(points: Points) -> Search:
    """pykdtree, with OpenMP."""
    tree = _module("pykdtree.kdtree", "pykdtree").KDTree(points)

    def search(queries: Points, k: int) -> npt.NDArray[np.int64]:
        return np.asarray(tree.query(queries, k=k)[1], np.int64).reshape(len(queries), k)

    return search


def sklearn_tree(points: Points) -> Search:
    """scikit-learn's `NearestNeighbors` on its KD tree, with a job per core."""
    neighbours = _module("sklearn.neighbors", "scikit-learn")
    tree = neighbours.NearestNeighbors(algorithm="kd_tree", n_jobs=cores()).fit(points)

    def search(queries: Points, k: int) -> npt.NDArray[np.int64]:
        return np.asarray(tree.kneighbors(queries, k, return_distance=False), np.int64)

    return search


TREES: dict[str, Callable[[Points], Search]] = {"scipy": scipy_tree, "pykdtree": pykdtree, "sklearn": sklearn_tree}
