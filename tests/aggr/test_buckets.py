"""Buckets compared with plain counting: groups, coarser buckets, adjacent and distant keys, and damaged states."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggr.arrow.bit_equality import same_bits
from aggr.compiling import jit
from aggr.groups.groups import Groups
from aggr.groups.numbers import Numbers
from aggr.histograms.buckets import Buckets
from aggr.histograms.column import HISTOGRAM_TYPE, Histograms
from tests.fuzzing import TIMES, inputs

NEAR, APART, FAR = st.integers(-300, 300), st.integers(-5000, 5000), st.integers(-(2**31), 2**31 - 1)
WIDE = st.integers(0, 60_000)  # many empty cells to each key
HOLES = st.integers(0, 30) | st.just(9_000)  # one empty cell here and there, and many
KEYS = st.lists(NEAR, max_size=60) | st.lists(NEAR | FAR, max_size=60) | st.lists(WIDE, min_size=20, max_size=60)
MAX_BUCKETS = st.sampled_from([None, 1, 3, 200, 2**31 - 1])


def folded(counts: Counter[int], max_buckets: int | None) -> dict[int, int]:
    lowest = max(counts, default=0) - (max_buckets or 2**40) + 1
    collapsed: Counter[int] = Counter()
    for key, count in counts.items():
        collapsed[max(key, lowest)] += count
    return dict(sorted(collapsed.items()))


def read(column: pa.StructArray) -> list[dict[int, int]]:
    sizes, keys, counts = Histograms.from_arrow(column)
    pairs = iter(zip(keys.tolist(), counts.tolist(), strict=True))
    return [dict(next(pairs) for _ in range(size)) for size in sizes.tolist()]


def written(rows: list[dict[int, int]]) -> pa.StructArray:
    flat = [entry for row in rows for entry in sorted(row.items())]
    keys, counts = (np.array([entry[i] for entry in flat], np.int64) for i in (0, 1))
    return Histograms(np.array([len(row) for row in rows], np.int64), keys, counts).to_arrow()


def counted(keys: list[int], ids: list[int], n: int, max_buckets: int | None) -> pa.StructArray:
    groups = Groups.of(ids, n)
    return Buckets(max_buckets).count(Numbers(np.array(keys, np.int64), groups).sorted_by_group, groups)


@pytest.mark.slow
@given(KEYS, st.integers(1, 4), MAX_BUCKETS, st.randoms())
def test_keys_are_counted_group_by_group(keys, n, max_buckets, random):
    ids = [random.randrange(n) for _ in keys]
    state = counted(keys, ids, n, max_buckets)
    naive = [Counter(key for key, group in zip(keys, ids, strict=True) if group == g) for g in range(n)]
    assert read(state) == [folded(counts, max_buckets) for counts in naive]
    assert state.field("total").to_pylist() == [counts.total() for counts in naive]
    for end, choose in (("low", min), ("high", max)):
        assert state.field(end).to_pylist() == [choose(folded(counts, max_buckets), default=0) for counts in naive]
    # the same from any parts, to the bit
    parts = [slice(0, len(keys) // 3), slice(len(keys) // 3, None)]
    states = [counted(keys[p], ids[p], n, max_buckets) for p in parts]
    assert same_bits(Buckets(max_buckets).merge(pa.concat_arrays(states), Groups.of([*range(n)] * 2, n)), state)


@pytest.mark.slow
@given(
    st.lists(st.dictionaries(NEAR, st.integers(1, 300) | st.integers(1, 2**55), max_size=40), max_size=8)
    | st.lists(st.dictionaries(APART, st.integers(1, 300), min_size=1, max_size=40), min_size=2, max_size=6)
    | st.lists(st.dictionaries(HOLES, st.integers(1, 60), min_size=12, max_size=31), min_size=3, max_size=6)
    | st.lists(st.dictionaries(FAR, st.integers(1, 2**55), max_size=8), max_size=8),
    st.integers(1, 3),
    MAX_BUCKETS,
    st.randoms(),
)
def test_histograms_are_added_group_by_group(rows, n, max_buckets, random):
    rows = [folded(Counter(row), max_buckets) for row in rows]
    ids = [random.randrange(n) for _ in rows]
    naive = [Counter() for _ in range(n)]
    for group, row in zip(ids, rows, strict=True):
        naive[group].update(row)
    expected = written([folded(counts, max_buckets) for counts in naive])
    for merge in (Buckets(max_buckets).merge, Buckets(max_buckets).merge_checked):
        assert same_bits(merge(written(rows), Groups.of(ids, n)), expected)


@pytest.mark.parametrize("apart", [1, 2, 3, 64, 65, 300])
def test_each_key_of_another_histogram(apart):
    """No histogram has a gap, and their sum has one before each key but the first: more bytes than are added."""
    rows = [{place * apart: 1} for place in range(3000)]
    summed = Counter({key: count for row in rows for key, count in row.items()})
    column = Buckets().merge(written(rows), Groups.single(len(rows)))
    assert same_bits(column, written([dict(summed)]))
    assert len(column.field("counts")[0].as_py()) == len(rows) + (len(rows) - 1) * ((apart > 1) + (apart > 65))


@pytest.mark.parametrize("span", range(1, 40))
def test_keys_side_by_side_are_counted_within_the_arrays(span, monkeypatch):
    """By the loops as the Python that they are, whose arrays check each index."""
    interpreter = jit._Interpreter()
    interpreter.max_elements = 10**6
    monkeypatch.setattr(jit, "_interpreter", interpreter)
    monkeypatch.setattr(jit, "_MACHINE_CODE", {})
    keys = [*range(span), 0, span - 1]
    assert read(counted(keys, [0] * len(keys), 1, None)) == [dict(sorted(Counter(keys).items()))]


def test_totals_beyond_int64_are_the_greatest_one():
    state = written([{1: 2**62, 2: 2**62, 3: 5}, {1: 7}])
    assert state.field("total").to_pylist() == [2**63 - 1, 7]
    merged = Buckets().merge(state.slice(0, 1), Groups.single(1))
    assert read(merged) == [{1: 2**62, 2: 2**62, 3: 5}]
    with pytest.raises(OverflowError, match="exceeds int64"):
        Buckets().merge(state, Groups.single(2))
    assert read(Buckets().merge(written([{1: 2**62}, {1: 2**62 - 2}]), Groups.single(2))) == [{1: 2**63 - 2}]


@pytest.mark.slow
@pytest.mark.parametrize("key_limit", [400, 40_000])
def test_damaged_states_are_refused_and_never_read_beyond(key_limit):
    rng = np.random.default_rng(1)
    intact = written(
        [{key: int(rng.integers(1, 300)) for key in rng.integers(0, key_limit, 60).tolist()} for _ in range(4)]
    )
    refused = 0
    for _ in inputs("merged histograms", 3000):
        low, high = (intact.field(end).to_numpy().copy() for end in ("low", "high"))
        counts = [bytearray(row) for row in intact.field("counts").to_pylist()]
        for row in rng.integers(0, 4, 2).tolist():
            damage = rng.integers(0, 4)
            if damage == 0 and counts[row]:
                counts[row][rng.integers(len(counts[row]))] = rng.integers(256)
            elif damage == 1:
                del counts[row][rng.integers(len(counts[row]) + 1) :]
            elif damage == 2:
                low[row] = rng.integers(-(2**31), 2**31)
            else:
                high[row] = rng.integers(-(2**31), 2**31)
        columns = [pa.array(low), pa.array(high), intact.field("total"), pa.array([bytes(row) for row in counts])]
        damaged = pa.StructArray.from_arrays(columns, fields=list(HISTOGRAM_TYPE))
        for groups in (Groups.single(4), Groups.of([0, 1, 1, 0], 2)):
            try:
                Buckets().merge_checked(damaged, groups)
            except ValueError as error:
                assert "has buckets that are cut off" in str(error)  # noqa: PT017
                refused += 1
    assert refused > 1000 * TIMES


@pytest.mark.parametrize("keys", [(1, 9), (1, 9_000)])
@pytest.mark.parametrize("row", [0, 1])
def test_counts_that_do_not_add_up_are_refused(keys, row):
    pair = written([dict.fromkeys(keys, 5), {3: 4}])
    totals = pair.field("total").to_pylist()
    totals[row] += 1
    columns = [pa.array(totals, pa.int64()) if f.name == "total" else pair.field(f.name) for f in HISTOGRAM_TYPE]
    damaged = pa.StructArray.from_arrays(columns, fields=list(HISTOGRAM_TYPE))
    with pytest.raises(ValueError, match="has buckets that are cut off"):
        Buckets().merge_checked(damaged, Groups.single(2))


def test_a_damaged_state_is_refused_when_read():
    intact = written([{7: 5, 8: 1, 9: 2, 40: 3}])
    keys_by_field, cut = [("low", 8), ("high", 41)], [b"\x0a\x02\x04\x3b", b"\x0a\x02\x04\x3b\x86"]
    for field, value in [*keys_by_field, *(("counts", data) for data in cut)]:
        columns = {f.name: intact.field(f.name) for f in HISTOGRAM_TYPE}
        columns[field] = pa.array([value], columns[field].type)
        with pytest.raises(ValueError, match="has buckets that are cut off"):
            Histograms.from_arrow(pa.StructArray.from_arrays(list(columns.values()), fields=list(HISTOGRAM_TYPE)))


@given(st.lists(st.integers(0, 4), max_size=50))
def test_rows_of_groups(ids):
    rows, until = Groups.of(ids, 5).rows_by_group, Groups.of(ids, 5).offsets
    for group in range(5):
        rows_of_group = rows[until[group] : until[group + 1]].tolist()
        assert rows_of_group == [i for i, id_ in enumerate(ids) if id_ == group]


def test_bytes_of_any_width_are_read():
    intact = written([{7: 5, 8: 1}, {}, {9: 2, 40: 3}])
    for kind in (pa.large_binary(), *([pa.binary_view()] if hasattr(pa, "binary_view") else [])):
        columns = [intact.field(f.name).cast(kind if f.name == "counts" else f.type) for f in HISTOGRAM_TYPE]
        other = pa.StructArray.from_arrays(columns, names=[f.name for f in HISTOGRAM_TYPE])
        assert same_bits(Buckets().merge(other, Groups.of([0, 1, 0], 2)), written([{7: 5, 8: 1, 9: 2, 40: 3}, {}]))
        assert read(other.slice(1)) == [{}, {9: 2, 40: 3}]


def test_keys_outside_the_range_of_the_field_are_refused():
    field = Buckets(lowest_key=3, highest_key=9)
    assert read(field.count(np.array([3, 9]), Groups.of([0, 0], 2))) == [{3: 1, 9: 1}, {}]
    for keys, key in (([2, 9], 2), ([3, 10], 10)):
        with pytest.raises(ValueError, match=f"the bucket key {key} is outside the range of the field, 3 to 9; filter"):
            field.count(np.array(keys), Groups.of([0, 0], 2))
