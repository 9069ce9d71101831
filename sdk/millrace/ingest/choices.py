"""The values that arguments with a fixed list of choices take: as types for checkers and editors, and as tuples.

A test compares `IndexName` with the registered indexes. Layouts and update modes are defined with their code in `host`.
"""

from __future__ import annotations

from typing import Literal, get_args

IndexName = Literal["auto", "bisort", "rap", "wib", "spo", "pim", "im", "chain", "btree", "scan"]
Output = Literal["pairs", "seqs", "count"]
How = Literal["inner", "left", "semi", "anti"]
KnnOutput = Literal["pairs", "seqs"]
KnnHow = Literal["inner", "left"]
Fallback = Literal["cpu"]
Duplicates = Literal["error", "first", "last"]
Side = Literal["r", "s"]

OUTPUTS: tuple[Output, ...] = get_args(Output)
HOWS: tuple[How, ...] = get_args(How)
KNN_OUTPUTS: tuple[KnnOutput, ...] = get_args(KnnOutput)
KNN_HOWS: tuple[KnnHow, ...] = get_args(KnnHow)
FALLBACKS: tuple[Fallback | None, ...] = (None, *get_args(Fallback))
DUPLICATES: tuple[Duplicates, ...] = get_args(Duplicates)
