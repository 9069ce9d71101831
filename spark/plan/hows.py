"""The sides of a join, and what `how` may be: the names of `mr.join`, `right`, `full`, and Spark's names for all."""

from __future__ import annotations

from typing import Any, Literal

from millrace.errors import ArgumentError

How = Literal[
    "inner",
    "left",
    "leftouter",
    "left_outer",
    "right",
    "rightouter",
    "right_outer",
    "full",
    "outer",
    "fullouter",
    "full_outer",
    "semi",
    "leftsemi",
    "left_semi",
    "anti",
    "leftanti",
    "left_anti",
]
KnnHow = Literal["inner", "left", "leftouter", "left_outer"]
"""What `ms.knn_join` takes."""
_NAMES = {
    "inner": ("inner",),
    "left": ("left", "leftouter"),
    "right": ("right", "rightouter"),
    "full": ("full", "outer", "fullouter"),
    "semi": ("semi", "leftsemi"),
    "anti": ("anti", "leftanti"),
}
"""Our name for each kind of join, and all its names; as in Spark, letters' case and underscores do not matter."""


def read_how(given: Any) -> str:
    """Our name for a kind of join."""
    if isinstance(given, str):
        wanted = given.lower().replace("_", "")
        for how, names in _NAMES.items():
            if wanted in names:
                return how
    allowed = ", ".join(repr(how) for how in _NAMES)
    raise ArgumentError(f"how={given!r} is unknown; allowed are {allowed}, and Spark's names for them")


def other_side(side: str) -> str:
    """s for r, r for s."""
    return "s" if side == "r" else "r"
