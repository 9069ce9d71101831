"""Columns plus a constant as words: exact in every type, saturating at its ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.host.base.words import to_words
from millrace.host.kernels.word_shifter import shifted_words

TYPES = [np.dtype(t) for t in (np.int32, np.uint32, np.int64, np.uint64)]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@settings(deadline=None)
@given(data=st.data())
def test_it_is_the_saturated_sum(dtype: np.dtype[Any], data: st.DataObject) -> None:
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    ends = st.sampled_from([low, low + 1, high - 1, high, max(low, 0)])
    values = data.draw(st.lists(st.one_of(ends, st.integers(low, high)), max_size=40))
    delta = data.draw(st.one_of(st.sampled_from([0, 1, -1, high, -high, 2**70]), st.integers(-(2**65), 2**65)))
    wanted = np.array([min(max(value + delta, low), high) for value in values], dtype)
    np.testing.assert_array_equal(shifted_words(np.array(values, dtype), delta), to_words(wanted))
