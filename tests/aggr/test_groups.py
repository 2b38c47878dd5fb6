"""Groups check the ids that compiled loops rely on: a wrong id raises an error, and does not cause a crash."""

from __future__ import annotations

import random
import sys

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr.exact.row_sums import sum_exactly
from aggr.fields import ADD, GREATEST, LEAST, OR
from aggr.groups.groups import Groups, group_by
from aggr.groups.numbers import Numbers, find_extreme_rows
from aggr.histograms.buckets import Buckets
from aggr.histograms.logarithmic_mapping import LogarithmicMapping

WRONG_IDS = {
    "an id that is too large": (np.array([0, 5]), 2, ValueError, "below the number of groups, 2; got ids from 0 to 5"),
    "a huge id": (np.array([0, 2**62]), 2, ValueError, "below the number of groups, 2; got"),
    "a negative id": (
        np.array([1, -1]),
        3,
        ValueError,
        "at least 0 and below the number of groups, 3; got ids from -1 to 1",
    ),
    "an id beyond int64": (np.array([2**64 - 1], np.uint64), 3, ValueError, "below the number of groups, 3; got"),
    "an id of no groups": (np.array([0]), 0, ValueError, "below the number of groups, 0; got ids from 0 to 0"),
    "floats": (np.array([0.0]), 1, TypeError, "array of whole numbers in one dimension; got float64, 1-D"),
    "booleans": (np.array([True]), 1, TypeError, "got bool, 1-D"),
    "two dimensions": (np.array([[0]]), 1, TypeError, "got int64, 2-D"),
    "objects": (np.array([0, None]), 1, TypeError, "got object, 1-D"),
    "a negative number of groups": (
        np.array([0]),
        -1,
        ValueError,
        r"number of groups must be from 0 to 2\^31 - 1; got -1",
    ),
    "too many groups": (
        np.array([0]),
        2**31,
        ValueError,
        r"number of groups must be from 0 to 2\^31 - 1; got 2147483648",
    ),
    "half a group": (np.array([0]), 1.0, TypeError, r"number of groups must be a whole number; got float 1\.0"),
    "true groups": (np.array([0]), True, TypeError, "number of groups must be a whole number; got bool True"),
}


@pytest.mark.parametrize(("ids", "n", "error", "says"), WRONG_IDS.values(), ids=WRONG_IDS)
@pytest.mark.parametrize("make", [Groups, Groups.of])
def test_wrong_ids_are_refused(make, ids, n, error, says):
    with pytest.raises(error, match=says):
        make(ids, n)


@pytest.mark.parametrize("ids", ["ab", None, 5, {0: 1}, ["a"], [None], [[0], [1, 2]]])
def test_what_are_no_ids(ids):
    for make in (Groups, Groups.of):
        with pytest.raises(TypeError, match=r"group ids must be (an? |whole)"):
            make(ids, 1)


@pytest.mark.parametrize("make", [Groups.each, Groups.single])
def test_a_number_of_rows(make):
    for wrong in (-1, 2**31, 10**30):
        with pytest.raises(ValueError, match=r"number of rows must be from 0 to 2\^31 - 1"):
            make(wrong)
    for wrong in (1.5, True, "3", None):
        with pytest.raises(TypeError, match="number of rows must be a whole number; got"):
            make(wrong)
    assert len(make(np.int64(3))) == 3


def test_any_whole_numbers_are_ids():
    for kind in (np.int8, np.uint16, np.int32, np.uint64, ">i8"):
        groups = Groups(np.array([0, 2, 0], kind), 3)
        assert groups.ids.dtype == np.intp
        assert groups.counts().tolist() == [2, 0, 1]
    assert Groups.of(range(3), 3).ids.tolist() == [0, 1, 2]


def test_ids_are_not_changed_by_way_of_the_groups():
    with pytest.raises(ValueError, match="read-only"):
        Groups(np.array([0, 1]), 2).ids[0] = 7


def test_rows_are_chosen_by_as_many_booleans():
    groups = Groups.of([0, 1, 0], 2)
    for wrong in (np.array([0, 1, 2]), np.array([True])):
        with pytest.raises(ValueError, match="rows must be selected by an array of 3 booleans"):
            groups.filter(wrong)


FIVE, TWO = np.arange(5), Groups.of([0, 0], 1)
EVENTS = pa.array([{"time": 1, "value": 1}] * 5)
SUMS = sum_exactly([Numbers(np.ones(5), Groups.each(5))])
HISTOGRAMS = Buckets().count(FIVE, Groups.each(5))
UNEQUAL = {
    "add": lambda: ADD.merge(pa.array(FIVE), TWO),
    "or": lambda: OR.merge(pa.array(FIVE.astype(np.int8)), TWO),
    "least": lambda: LEAST.merge(pa.array(FIVE), TWO),
    "greatest of text": lambda: GREATEST.merge(pa.array(["a"] * 5), TWO),
    "earliest": lambda: aggr.First().own_state.fields["earliest"].merge(EVENTS, TWO),
    "exact": lambda: aggr.Sum().own_state.fields["sum"].merge(SUMS, TWO),
    "buckets": lambda: Buckets().merge(HISTOGRAMS, TWO),
    "keys": lambda: Buckets().count(FIVE, TWO),
    "numbers": lambda: Numbers(FIVE, TWO),
    "row of the extreme": lambda: find_extreme_rows(FIVE, TWO, True),
    "keys of groups": lambda: group_by([pa.array(FIVE)], 2),
    "a function": lambda: aggr.Max().reduce(pa.array(FIVE), TWO),
    "states": lambda: aggr.Count().merge(aggr.Count().zero(5, pa.int64()), TWO),
}


@pytest.mark.parametrize("call", UNEQUAL.values(), ids=UNEQUAL)
def test_every_row_needs_a_group_id(call):
    with pytest.raises(ValueError, match=r"got 5 \w+( \w+ \w+)? and 2 (group ids|rows)"):
        call()


def test_keys_of_what_no_bucket_holds():
    mapping = LogarithmicMapping(0.01)
    for wrong in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="buckets can contain only numbers above 0 and below infinity"):
            mapping.keys(np.append(np.ones(1 << 17), wrong))


@pytest.mark.parametrize("scale", [2**53, 2**62])
def test_keys_further_apart_than_int64_holds(scale):
    keys = np.array([-(2**63), scale, -(2**63), scale, 0])
    groups, single = group_by([pa.array([1, 0, 1, 0, 0]), pa.array(keys), pa.array([2, 1, 0, 1, 0])], 5)
    rows = list(zip([1, 0, 1, 0, 0], keys.tolist(), [2, 1, 0, 1, 0], strict=True))
    assert [sorted(set(rows)).index(row) for row in rows] == groups.ids.tolist()
    assert [rows[at] for at in single] == sorted(set(rows))


@pytest.mark.parametrize("little", [0, 1 << 13], ids=["by loops", "by numpy"])
@pytest.mark.parametrize("seed", range(20))
def test_rows_that_agree_in_every_key_are_a_group(seed, little, monkeypatch):
    monkeypatch.setattr(sys.modules[group_by.__module__], "_MIN_COMPILED_ROWS", little)
    rng = random.Random(seed)
    rows = rng.choice([1, 2, 300])
    indices = rng.choice([pa.int8(), pa.uint8(), pa.int16(), pa.int32(), pa.uint32(), pa.int64()])
    values = {
        "times": pa.array(sorted(rng.choices(range(5), k=rows)), pa.int64()).cast(pa.timestamp("us", "UTC")),
        "whole": pa.array(rng.choices([*range(-3, 3), None], k=rows), pa.int32()),
        "far": pa.array(rng.choices([-(2**63), 0, 7, 2**63 - 1], k=rows), pa.int64()),
        "texts": pa.array(rng.choices(["b", "a", "", None], k=rows)),
        "coded": pa.DictionaryArray.from_arrays(
            pa.array(rng.choices([0, 1, 2, None], k=rows), indices), pa.array(["z", "a", "z"])
        ),
    }
    names = rng.sample(list(values), rng.randint(0, len(values)))
    groups, first_rows = group_by([values[name] for name in names], rows)

    keys = list(zip(*(values[name].to_pylist() for name in names), strict=True)) or [()] * rows
    distinct = sorted(set(keys), key=lambda key: [(value is None, 0 if value is None else value) for value in key])
    assert groups.ids.tolist() == [distinct.index(key) for key in keys]
    assert groups.counts().tolist() == [keys.count(key) for key in distinct]
    assert [keys[row] for row in first_rows] == distinct
