"""Relative times of the strategies of a batch join, by sampled sizes. The unit: Spark shuffles and sorts a row.

The rule: the strategy with the smallest sum of a time per row and a time per pair. The constants are fitted by hand to
`millrace bench spark --case strategies-` and `--case matches-`: 1 M with 1 M rows that have 2, 20 and 200 partners
each, on two cores (docs/internals/spark.md has the times). There a unit is a third of a microsecond, Spark compares a
pair in 3 ns and returns one in 13, and a pair that a task finds takes 40 ns to return from Python. All are about linear
from 2 to 200 partners. The time of the sample is not counted: every strategy but a requested broadcast has it.
"""

from __future__ import annotations

from millrace.spark.plan.buckets import Buckets, BucketTerms, compared
from millrace.spark.plan.hows import other_side
from millrace.spark.plan.sampling import Sample

COMPARED_PER_ROW, PAIRS_PER_ROW = 100.0, 25.0
"""Pairs that Spark's own join compares, and that it returns, in one unit."""
PYTHON_PAIRS_PER_ROW = 8.5
"""Pairs that tasks find and return in one unit."""
HELD, PROBING, CELLS = 0.55, 0.65, 1.5
"""Units per row: collected, saved and opened; sent through Python; shuffled and sent through Python."""
SPARK_BROADCASTS, UNSHUFFLED = 1 << 14, 0.3
"""Rows of a side that Spark broadcasts by itself, about, and the units of a row of the other side then (a guess)."""
SORTED_FROM = 8.0
"""Partners of a held row from which sorting the held rows pays: payload of neighbours is then read together."""
FACTORS = (0.25, 0.5, 1.0, 1.5, 2.0, 4.0)
"""Widths of buckets, in widths of the band."""


def best_width(terms: BucketTerms, samples: dict[str, Sample], home: str) -> Buckets:
    """The cheapest buckets of a home side: of equal columns alone, or of a band with one of several widths."""
    band = terms.bands[home]
    widths = [0.0] if terms.terms.equal else []
    if band is not None:
        widths += [band.width * factor for factor in FACTORS]
    options = [Buckets(terms, home, width, compared(terms, samples, home, width)) for width in widths]
    return min(options, key=lambda option: of_buckets(option, samples))


def of_buckets(option: Buckets, samples: dict[str, Sample], pairs: float = 0.0) -> float:
    """Spark's own join: rows that are shuffled, a guest row once per bucket, pairs that are compared and returned."""
    copies = 1.0 if option.band is None else 1 + option.band.width / option.width
    sides = samples[option.home].rows, copies * samples[other_side(option.home)].rows
    sent = min(sides) + max(sides) * (UNSHUFFLED if min(sides) <= SPARK_BROADCASTS else 1.0)
    return sent + option.compared / COMPARED_PER_ROW + pairs / PAIRS_PER_ROW


def of_broadcast(rows: dict[str, int], held: str, pairs: float) -> float:
    """A broadcast join with this held side."""
    return HELD * rows[held] + PROBING * rows[other_side(held)] + pairs / PYTHON_PAIRS_PER_ROW


def sort_held(rows: int, pairs: float) -> bool:
    """Whether to sort so many held rows by their key before they are saved, if they have so many partners together."""
    return pairs >= SORTED_FROM * rows


def of_cells(rows: dict[str, int], pairs: float) -> float:
    """A join by range or grid."""
    return CELLS * sum(rows.values()) + pairs / PYTHON_PAIRS_PER_ROW
