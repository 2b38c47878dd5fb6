"""Tables of states by key: states are merged only if their keys repeat often enough, and errors name the key."""

from __future__ import annotations

import pyarrow as pa
import pytest

import aggr
from aggr import Groups
from aggr.fields import CannotSubtract
from aggr.tables.by_key import finish_by, merge_by, subtract_by


@pytest.mark.parametrize(("max_ratio", "merged"), [(0.7, False), (0.74, False), (0.75, True), (1.0, True)])
def test_states_are_merged_if_they_have_few_enough_keys(max_ratio, merged):
    count, key = aggr.Count(), pa.array(["a", "b", "a", "c"])  # three of four
    states = pa.table({"k": key, "n": count.reduce(pa.array([1, 1, 1, None]), Groups.of([0, 1, 2, 3], 4))})
    result = merge_by(states, {"k": key}, {"n": count}, max_ratio)
    assert (result is not states) == merged
    if merged:
        assert result["k"].to_pylist() == ["a", "b", "c"]
        assert count.finish(result["n"].combine_chunks()).to_pylist() == [2, 1, 0]


def test_errors_name_the_key():
    count, single = aggr.Count(), Groups.single(1)
    of_a, of_b = (pa.table({"k": [key], "n": count.reduce(pa.array([1]), single)}) for key in "ab")
    with pytest.raises(CannotSubtract, match="k='b'"):
        subtract_by(of_a, of_b, ["k"], {"n": count})
    total = aggr.sum("x")
    sums = total.function.reduce(pa.array([1, 2**63 - 1, 1, 5]), Groups.of([0, 1, 1, 2], 3))
    with pytest.raises(OverflowError, match=rf"^s, .* at k='b': .*{2**63} does not fit into int64"):
        finish_by(pa.table({"k": ["a", "b", "c"], "x": sums}), ["k"], {"s": ("x", total)})
