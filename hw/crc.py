"""Combines CRC-32 checksums: computes zlib's checksum of an array from the engine's checksums of its slices.

The engine computes a checksum of each slice over full memory beats, without zlib's inversions (`hw/rtl/axi_sum.sv`).
The host corrects for the bytes behind the end of a slice in its last beat. Bits are reflected: the highest bit of a
number is the coefficient of x to the power of 0.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from functools import cache

import numpy as np

from millrace.host.base.types import Array

POLYNOMIAL = 0xEDB88320
ONE = 1 << 31
ALL = 0xFFFFFFFF
ORDER = (1 << 32) - 1
"""x to this power is 1: the polynomial is primitive."""


def sum_of(array: Array) -> int:
    """The checksum of an array's bytes."""
    return zlib.crc32(np.ascontiguousarray(array).data)


def of_beats(remainder: int, size: int, after: int) -> int:
    """zlib's checksum of `size` bytes, from the remainder of their beats; `after` zero bytes end the last beat."""
    message = _times(_power(ORDER - 8 * after), remainder)
    # zlib starts with all ones and inverts the result.
    return message ^ _times(_power(8 * size), ALL) ^ ALL


def combined(parts: Iterable[tuple[int, int]]) -> int:
    """The checksum of a concatenation; each part is given by its checksum and its number of bytes."""
    total = 0
    for crc, size in parts:
        total = _times(_power(8 * size), total) ^ crc
    return total


def _times(a: int, b: int) -> int:
    """The product of two polynomials modulo the CRC's."""
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = b >> 1 ^ (POLYNOMIAL if b & 1 else 0)
    return product


def _power(exponent: int) -> int:
    """x to the power of `exponent`."""
    found, bit = ONE, 0
    while exponent >> bit:
        if exponent >> bit & 1:
            found = _times(_square(bit), found)
        bit += 1
    return found


@cache
def _square(times: int) -> int:
    """x, squared `times` times."""
    if times == 0:
        return ONE >> 1
    root = _square(times - 1)
    return _times(root, root)
