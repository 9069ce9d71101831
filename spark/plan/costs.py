"""Relative times of the strategies of a batch join, by sampled sizes. The unit: Spark shuffles and sorts a row.

The constants come from `millrace bench spark` on two cores. They only have to be right enough to tell strategies apart
that differ much; where they are close, either will do.
"""

from __future__ import annotations

from millrace.spark.plan.buckets import Buckets, BucketTerms, compared
from millrace.spark.plan.hows import other_side
from millrace.spark.plan.sampling import Sample

COMPARED_PER_ROW = 30.0
"""Pairs that Spark compares in one unit."""
PYTHON_PAIRS_PER_ROW = 8.0
"""Pairs that tasks find and return in one unit."""
HELD, PROBING, CELLS = 0.5, 1.1, 1.85
"""Units per row: collected, sorted and saved; sent through Python; shuffled and sent through Python."""
LARGE_HELD = 1 << 20
"""Held rows from which sorting and searching them is slower than in proportion."""
CLEARLY = 0.8
"""Spark's own join is chosen if its time is below this share of the other's."""
FACTORS = (0.25, 0.5, 1.0, 2.0)
"""Widths of buckets, in widths of the band."""


def best_width(terms: BucketTerms, samples: dict[str, Sample], home: str) -> Buckets:
    """The cheapest buckets of a home side: of equal columns alone, or of a band with one of several widths."""
    band = terms.bands[home]
    widths = [0.0] if terms.terms.equal else []
    if band is not None:
        widths += [band.width * factor for factor in FACTORS]
    options = [Buckets(terms, home, width, compared(terms, samples, home, width)) for width in widths]
    return min(options, key=lambda option: of_buckets(option, samples))


def of_buckets(option: Buckets, samples: dict[str, Sample]) -> float:
    """Spark's own join: rows that are shuffled, a guest row once per bucket, and pairs that are compared."""
    copies = 1.0 if option.band is None else 1 + option.band.width / option.width
    sent = samples[option.home].rows + copies * samples[other_side(option.home)].rows
    return sent + option.compared / COMPARED_PER_ROW


def of_broadcast(rows: dict[str, int], held: str, pairs: float) -> float:
    """A broadcast join with this held side."""
    large = max(1.0, rows[held] / LARGE_HELD) ** 2
    return HELD * large * rows[held] + PROBING * rows[other_side(held)] + pairs / PYTHON_PAIRS_PER_ROW


def of_cells(rows: dict[str, int], pairs: float) -> float:
    """A join by range or grid."""
    return CELLS * sum(rows.values()) + pairs / PYTHON_PAIRS_PER_ROW
