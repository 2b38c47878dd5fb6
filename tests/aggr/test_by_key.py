"""Tables of states by key: states are merged only if their keys repeat often enough, and errors name the key."""

from __future__ import annotations

import os
import random

import pyarrow as pa
import pytest

import aggr
from aggr import Groups
from aggr.arrow.bit_equality import same_bits
from aggr.fields import CannotSubtract
from aggr.state_checks import mark_as_checked
from aggr.tables import by_key
from aggr.tables.by_key import finish_by, merge_by, subtract_by

SEED = int(os.environ.get("TILTFRAME_SEED", random.randrange(10**6)))


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


@pytest.mark.parametrize("trial", range(8))
def test_ranges_of_single_states_are_copied_and_the_others_merged(trial, monkeypatch):
    draws = random.Random(SEED + trial)
    functions = {"total": aggr.sum("x").function, "p": aggr.dds("x", [0.5]).function}
    # tables of consecutive keys; neighbouring tables share some keys, and in some trials the tables are not in order
    firsts = [40 * place + draws.randrange(5) for place in range(6)]
    firsts[3] = firsts[2] + 35  # at least one key is in two tables
    if trial % 2:
        draws.shuffle(firsts)
    keys = [key for first in firsts for key in range(first, first + draws.randrange(36, 46))]
    values = pa.array([draws.uniform(-1e6, 1e6) for _ in keys])
    states = {name: function.reduce(values, Groups.each(len(keys))) for name, function in functions.items()}
    table = pa.table({"k": keys, **states})
    monkeypatch.setattr(by_key, "_RANGE_GROUPS", 3)
    copied = merge_by(mark_as_checked(table), {"k": pa.array(keys)}, functions)
    assert copied["k"].to_pylist() == sorted(set(keys))
    # a merge of unchecked states does not copy ranges
    expected = merge_by(table, {"k": pa.array(keys)}, functions)
    for name in functions:
        assert expected[name].num_chunks == 1
        assert same_bits(copied[name], expected[name]), (SEED + trial, name)
    assert copied["total"].num_chunks > 1


def test_states_of_an_earlier_layout_are_not_copied(monkeypatch):
    dds, n = aggr.dds("x", [0.5]).function, 20
    now = dds.reduce(pa.array([float(key) for key in range(n)]), Groups.each(n))
    fields = {field.name: now.field(field.name) for field in now.type}
    fields["version"] = pa.array([1] * n, pa.int8())
    earlier = pa.StructArray.from_arrays(list(fields.values()), names=list(fields))
    table = pa.table({"k": [*range(n), 0], "p": pa.concat_arrays([earlier, earlier.slice(0, 1)])})
    monkeypatch.setattr(by_key, "_RANGE_GROUPS", 3)
    merged = merge_by(mark_as_checked(table), {"k": table["k"].combine_chunks()}, {"p": dds})
    assert set(merged["p"].combine_chunks().field("version").to_pylist()) == {2}
