"""Mutations for fuzzing: of bytes, of JSON values and of texts made of tokens. All draw from a seeded generator."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from random import Random
from typing import Any

NUMBERS = (0, 1, 2, 7, 8, 0x7F, 0x80, 0xFF)
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    255,
    2**31,
    2**62,
    2**63,
    -(2**63) - 1,
    2**70,
    0.5,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "\ud800",
    "é\0\n",
    "r",
    "int64",
    "timestamp[ns, UTC]",
    "0" * 64,
    [],
    {},
    [None],
    [[1, 2], [3]],
    {"": 0},
    [-1] * 20,
)


def bytes_of(rng: Random, seed: bytes) -> bytes:
    """One to four edits: bits, bytes, spans removed, repeated, moved, cut off or added."""
    data = bytearray(seed)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        span = rng.choice((1, 1, 2, 4, 8, rng.randrange(1, 65)))
        match rng.randrange(8):
            case 0 if data:
                data[min(at, len(data) - 1)] ^= 1 << rng.randrange(8)
            case 1 if data:
                data[min(at, len(data) - 1)] = rng.choice((rng.randrange(256), *NUMBERS))
            case 2:
                del data[at : at + span]
            case 3:
                data[at:at] = rng.randbytes(span)
            case 4:
                data[at:at] = data[at : at + span]
            case 5:
                other = rng.randrange(len(data) + 1)
                data[at : at + span] = data[other : other + span]
            case 6:
                del data[at:]
            case _:
                data[at : at + 4] = rng.choice((0, 2**31 - 1, 2**32 - 1, len(data), 1)).to_bytes(4, "little")
    return bytes(data)


def json_of(rng: Random, seed: Any) -> Any:
    """A copy with one or two places replaced, removed, added or exchanged."""
    value = copy.deepcopy(seed)
    for _ in range(rng.choice((1, 1, 2))):
        slot = rng.choice(_slots(value) or [(None, None)])
        if slot[0] is None:
            return rng.choice(VALUES)
        inside, key = slot
        match rng.randrange(5):
            case 0:
                del inside[key]
            case 1 if isinstance(inside, dict):
                inside[rng.choice(("", "extra", "size", "\ud800"))] = copy.deepcopy(rng.choice(VALUES))
            case 2 if isinstance(inside[key], int):
                inside[key] += rng.choice((-1, 1, 1 << 32))
            case 3:
                other, name = rng.choice(_slots(value))
                inside[key] = copy.deepcopy(other[name])
            case _:
                inside[key] = copy.deepcopy(rng.choice(VALUES))
    return value


def _slots(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a JSON value."""
    found: list[tuple[Any, Any]] = []
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        found.append((value, key))
        found += _slots(value[key])
    return found


_TOKEN = re.compile(r"\s+|\w+|.", re.DOTALL)


def text_of(rng: Random, seeds: Sequence[str], words: Sequence[str]) -> str:
    """A text with some tokens removed, repeated, exchanged or replaced; sometimes with foreign characters."""
    tokens = _TOKEN.findall(rng.choice(seeds))
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(tokens) + 1)
        match rng.randrange(6):
            case 0:
                del tokens[at : at + rng.randrange(1, 4)]
            case 1:
                tokens[at:at] = [rng.choice(words)]
            case 2:
                tokens[at : at + 1] = [" ", rng.choice(words), " "]
            case 3:
                other = _TOKEN.findall(rng.choice(seeds))
                start = rng.randrange(len(other))
                tokens[at:at] = other[start : start + rng.randrange(1, 8)]
            case 4 if tokens:
                other_at = rng.randrange(len(tokens))
                at = min(at, len(tokens) - 1)
                tokens[at], tokens[other_at] = tokens[other_at], tokens[at]
            case _:
                code = rng.choice((rng.randrange(0x20, 0x7F), rng.randrange(1, 0x3000), 0xD800, 0x1F600))
                tokens[at:at] = [chr(code)]
    return "".join(tokens)
