"""retention: the share of the keys of one window that occur again in another one, compared with sets."""

from __future__ import annotations

import os
import random

import pyarrow as pa
import pytest

import aggr
from aggr import Groups, ValueCounts

TRIALS = int(os.environ.get("TRIALS", 30))
SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))


def maps(rows: list[list], function: aggr.Function | None = None, kind: pa.DataType | None = None) -> pa.StructArray:
    flat = [(group, key) for group, keys in enumerate(rows) for key in keys]
    groups = Groups.of([group for group, _ in flat], len(rows))
    return (function or ValueCounts()).reduce(pa.array([key for _, key in flat], kind or pa.string()), groups)


def test_shares_are_those_of_sets():
    print("seed", SEED)
    draws = random.Random(SEED)
    for _ in range(TRIALS):
        n = draws.randrange(1, 6)
        rows = [[draws.choices("abcdefgh", k=draws.choice([0, 1, 9])) for _ in range(n)] for _ in range(2)]
        expected = [
            len(set(these) & set(later)) / len(set(these)) if these else None
            for these, later in zip(*rows, strict=True)
        ]
        assert aggr.retention(*(maps(row) for row in rows)).to_pylist() == expected


def test_of_null_states_nothing_is_known():
    states = maps([["a", "b"], ["a"]])
    unknown = pa.concat_arrays([states[:1], pa.nulls(1, states.type)])
    assert aggr.retention(unknown, states).to_pylist() == [1.0, None]
    assert aggr.retention(states, unknown).to_pylist() == [1.0, None]


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_samples_estimate_it(share):
    sample = aggr.Per(max=1000, beyond="sample")
    week, later = range(30_000), range(int(30_000 * (1 - share)), 90_000)
    (shares,) = aggr.retention(*(maps([[*keys]], sample, pa.int64()) for keys in (week, later))).to_pylist()
    unbiased_share = (
        1000 * 30_000 / (90_000 - later[0])
    )  # of the week's keys, below the theta of the later and fuller sample
    assert 0 < abs(shares - share) < 4 * (share * (1 - share) / unbiased_share) ** 0.5


def test_what_has_no_keys_is_refused():
    counts = aggr.Count().reduce(pa.array([1]), Groups.single(1))
    with pytest.raises(TypeError, match="states of count have no keys; retention needs states of per or value_counts"):
        aggr.retention(counts, counts)
    with pytest.raises(ValueError, match="two columns of equal length; got 1 states and 2"):
        aggr.retention(maps([["a"]]), maps([["a"], []]))
