"""Draws partitioning maps before and after adaptation: `python tools/draw_partitions.py docs/images/knn-maps.png`.

A cloud of points is streamed through 8 partitions, then moves. The load balancer (`host/knn/balance.py`) replaces the
map. Each region has its partition's colour; the dots are points of the stream. Needs matplotlib.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from millrace.host.knn.index import PointQueries
from millrace.host.knn.join_core import PointShape
from millrace.host.knn.maps import MapKind, SpaceMap
from millrace.host.knn.partitioned import PartitionedIndex, Partitioning

KINDS: tuple[MapKind, ...] = ("kdtree", "quadtree", "grid")
PARTITIONS, SLIDE, WINDOW, STEPS = 8, 10_000, 40_000, 8
ENDS = ((-3.0, 7.0), (-3.5, 3.5))


def points(rng: np.random.Generator, moved: float) -> np.ndarray:
    """A dense and a wide cloud; the dense one moves to the right."""
    dense, wide = rng.normal((moved, 0), (0.4, 0.8), (SLIDE // 2, 2)), rng.normal((1.5, 0), 1.3, (SLIDE // 2, 2))
    return np.concatenate([dense, wide]).T


def adapt(kind: MapKind) -> list[tuple[SpaceMap, np.ndarray, np.ndarray]]:
    """The map, the last points and the shares of the load before and after the move."""
    rng = np.random.default_rng(1)
    index = PartitionedIndex(Partitioning(PARTITIONS, kind, "instant"), PointShape(2))
    found = []
    for step in range(2 * STEPS):
        new = points(rng, 0.0 if step < STEPS else 4.0)
        before = index.loads
        index.insert(list(new))
        index.expire(index.end - WINDOW)
        index.query(PointQueries(list(new)), 10)
        if step % STEPS == STEPS - 1:
            assert isinstance(index.map, SpaceMap)
            found.append((index.map, new, (index.loads - before) / (index.loads - before).mean()))
    return found


def draw(axes: Any, made: SpaceMap, shown: np.ndarray, colours: Any) -> None:
    """The regions of a map, in their partitions' colours, and some points."""
    from matplotlib.patches import Rectangle

    for leaf in made.leaves():
        low = [max(a, b[0]) for a, b in zip(made.lows[leaf], ENDS, strict=True)]
        high = [min(a, b[1]) for a, b in zip(made.highs[leaf], ENDS, strict=True)]
        if all(a < b for a, b in zip(low, high, strict=True)):
            colour = colours(made.owners[leaf] % 10)
            box = Rectangle((low[0], low[1]), high[0] - low[0], high[1] - low[1], facecolor=colour, alpha=0.55)
            axes.add_patch(box)
    axes.scatter(shown[0, ::8], shown[1, ::8], s=0.6, color="black", linewidths=0)
    axes.set(xlim=ENDS[0], ylim=ENDS[1], xticks=[], yticks=[])


def main(picture: str) -> None:
    """One row before and one after the move; a column per kind of map."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(2, len(KINDS), figsize=(9, 4.6), layout="constrained")
    for column, kind in enumerate(KINDS):
        for row, (made, shown, loads) in enumerate(adapt(kind)):
            axes = grid[row, column]
            draw(axes, made, shown, plt.get_cmap("tab10"))
            axes.set_title(f"{kind}, {('before', 'after')[row]}: busiest {loads.max():.2f}x the mean", fontsize=9)
    figure.savefig(picture, dpi=90, metadata={"Software": None} if picture.endswith("png") else None)
    plt.close(figure)


if __name__ == "__main__":
    main(sys.argv[1])
