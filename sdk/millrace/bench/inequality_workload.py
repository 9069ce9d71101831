"""The data of bench `inequality_join`: readings with two correlated int64 columns, and conditions on both.

`power` is uniform, and `cool` follows it with noise: the more noise, the more pairs satisfy `r.power < s.power AND
r.cool > s.cool`. The noise for a wanted share of pairs is computed exactly, so the number of matches is the wanted one
but for chance. Without correlation a quarter of all pairs match, which is the most that is offered.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

DOMAIN = 1 << 40
"""The range of `power`."""
SEED = 20_260
MAX_SHARE = 0.25
ON = "r.power < s.power AND r.cool > s.cool"
Longs = npt.NDArray[np.int64]
Columns = dict[str, Longs]
Output = Literal["count", "seqs"]
OUTPUTS: tuple[Output, ...] = get_args(Output)


def readings(rng: np.random.Generator, rows: int, share: float) -> Columns:
    """Rows of which `share` of all pairs satisfy `ON`.

    With noise of the width w, the share is w / 6 - w^2 / 24 up to w = 1, where it is 1 / 8. Beyond, the slope of
    `cool` is u = 1 / w, and the share is 1 / 4 - u / 6 + u^2 / 24.
    """
    if not 0 < share <= MAX_SHARE:
        raise ValueError(f"share={share}: allowed are more than 0 and at most {MAX_SHARE}")
    power, noise = rng.random(rows), rng.random(rows)
    if share <= MAX_SHARE / 2:
        cool = power + 2 * (1 - sqrt(1 - 6 * share)) * noise
    else:
        cool = 2 * (1 - sqrt(1 - 6 * (MAX_SHARE - share))) * power + noise
    return {"power": (DOMAIN * power).astype(np.int64), "cool": (DOMAIN * cool).astype(np.int64)}


@dataclass(frozen=True)
class Readings:
    """Two tables of `rows` rows with about so many matches.

    `groups`: an equality of so many groups stands in front. `band`: instead of the first inequality a band with so many
    partners per row, of which the second inequality keeps half.
    """

    rows: int
    matches: int
    output: Output
    groups: int = 1
    band: int = 0

    @property
    def on(self) -> str:
        """The condition, in our syntax and in SQL."""
        if self.band:
            eps = round(self.band * DOMAIN / (2 * self.rows))
            return f"s.power BETWEEN r.power - {eps} AND r.power + {eps} AND r.cool > s.cool"
        return f"r.site = s.site AND {ON}" if self.groups > 1 else ON

    @cached_property
    def sides(self) -> tuple[Columns, Columns]:
        """r and s, generated once for all contenders."""
        rng = np.random.default_rng([SEED, self.rows, self.matches, self.groups])
        share = MAX_SHARE if self.band else self.matches * self.groups / self.rows**2
        return self._side(rng, share), self._side(rng, share)

    def _side(self, rng: np.random.Generator, share: float) -> Columns:
        site = {"site": rng.integers(0, self.groups, self.rows)} if self.groups > 1 else {}
        return {**site, **readings(rng, self.rows, share)}

    @property
    def facts(self) -> dict[str, Any]:
        """What a result line reports about the work."""
        facts = {"rows": self.rows, "output": self.output, "matches": self.matches, "groups": self.groups}
        return {**facts, "band": self.band} if self.band else facts
