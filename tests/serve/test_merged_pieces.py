"""Ranges of rows are merged in pieces, between which the deadline is checked."""

from __future__ import annotations

import numpy as np
import pytest

from tiltframe.serve.promql.select import _MERGED_AT_ONCE, _pieces_of_runs

ROWS = 1_000_000
RANGES = {
    "a common start": (np.zeros(5000, np.int64), np.linspace(1, ROWS, 5000).astype(np.int64)),
    "half of the rows": (np.arange(0, ROWS // 2, 100), np.arange(ROWS // 2, ROWS, 100)),
    "a few rows": (np.arange(0, ROWS - 60), np.arange(60, ROWS)),
    "single rows": (np.arange(ROWS), np.arange(1, ROWS + 1)),
    "a long range and short ones": (np.append(0, np.arange(ROWS - 1)), np.append(ROWS // 2, np.arange(1, ROWS))),
}


@pytest.mark.parametrize("name", RANGES)
def test_pieces_contain_few_rows_twice(name):
    first, last = RANGES[name]
    pieces = list(_pieces_of_runs(first, last))
    longest = int((last - first).max())
    assert [piece.low for piece in pieces] == [0, *(piece.high for piece in pieces[:-1])]
    assert pieces[-1].high == len(first)
    for low, high, begin, end in pieces:
        assert begin == first[low:high].min()
        assert end == last[low:high].max()
        assert end - begin + high - low <= 3 * max(_MERGED_AT_ONCE, longest)
    assert sum(piece.end - piece.begin for piece in pieces) <= 3 * (ROWS + len(first))
