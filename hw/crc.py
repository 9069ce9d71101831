"""CRC-32 of pieces: out of the engine's sums of a transfer's slices, the sum that zlib has of the whole array.

The engine sums each slice in whole beats of memory, without zlib's inversions (`hw/rtl/axi_sum.sv`); the host knows
where a slice ends in its last beat. Bits are reflected: the highest bit of a number is the coefficient of x to the
power of 0.
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
    """The sum of an array's bytes."""
    return zlib.crc32(np.ascontiguousarray(array).data)


def of_beats(remainder: int, size: int, after: int) -> int:
    """The sum of `size` bytes whose beats have that remainder, where `after` bytes of zero end the last beat."""
    message = _times(_power(ORDER - 8 * after), remainder)
    # zlib begins with ones and ends with an inversion.
    return message ^ _times(_power(8 * size), ALL) ^ ALL


def combined(parts: Iterable[tuple[int, int]]) -> int:
    """The sum of all parts, each given by its sum and its bytes."""
    whole = 0
    for crc, size in parts:
        whole = _times(_power(8 * size), whole) ^ crc
    return whole


def _times(a: int, b: int) -> int:
    """The product of two polynomials modulo the CRC's."""
    product = 0
    for place in range(31, -1, -1):
        if a >> place & 1:
            product ^= b
        b = b >> 1 ^ (POLYNOMIAL if b & 1 else 0)
    return product


def _power(exponent: int) -> int:
    """x to that power."""
    found, bit = ONE, 0
    while exponent >> bit:
        if exponent >> bit & 1:
            found = _times(_square(bit), found)
        bit += 1
    return found


@cache
def _square(times: int) -> int:
    """x, squared so many times."""
    if times == 0:
        return ONE >> 1
    root = _square(times - 1)
    return _times(root, root)
