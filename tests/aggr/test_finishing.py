"""Results that are read from the bytes of a histogram have the bits of results computed from its list of buckets."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr import Groups
from aggr.histograms.column import Histograms
from aggr.histograms.logarithmic_mapping import LogarithmicMapping
from aggr.histograms.reading import PackedHistograms
from aggr.quantile_parameters import percentile

QUANTILES = (0.999, 0.0, 0.5, 0.25, 1.0)  # in no order


def rows_of(column):
    """List each histogram's buckets as (key, count)."""
    sizes, keys, counts = Histograms.from_arrow(column)
    pairs = iter(zip(keys.tolist(), counts.tolist(), strict=True))
    return [[next(pairs) for _ in range(size)] for size in sizes.tolist()]


def spread(buckets):
    return [key for key, count in buckets for _ in range(count)]


def random_values(seed, n=40):
    """Draw groups of 0 to some 300 values of widely different sizes, many of them several times."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 300, n)
    ids = np.repeat(np.arange(n), sizes)
    return np.round(rng.lognormal(2.0, rng.choice([0.1, 1.0, 4.0], n)[ids]), 1), Groups(ids, n)


@pytest.mark.parametrize("seed", range(5))
def test_keys_at_ranks_and_counts_up_to_a_key(seed):
    x, groups = random_values(seed)
    column = aggr.Hdr(digits=2, unit=0.1).reduce(pa.array(x), groups).field("buckets")
    listed, packed = [spread(row) for row in rows_of(column)], PackedHistograms.from_arrow(column)
    sizes = np.array([len(row) for row in listed])
    assert packed.totals.tolist() == sizes.tolist()
    ranks = np.sort(np.random.default_rng(seed).integers(0, 300, (4, len(sizes))) % np.maximum(sizes, 1), axis=0)
    keys = packed.keys_at(ranks)
    for i, row in enumerate(listed):
        if row:
            assert keys[:, i].tolist() == [row[rank] for rank in ranks[:, i]]
    for key in (-1, 0, 17, 200, 10**6):
        assert packed.up_to(np.full(len(listed), key)).tolist() == [sum(k <= key for k in row) for row in listed]


@pytest.mark.parametrize("seed", range(5))
def test_hdr_reads_what_its_buckets_say(seed):
    x, groups = random_values(seed)
    hdr = aggr.Hdr(QUANTILES, 3, 0.1)
    states = hdr.reduce(pa.array(x), groups)
    for buckets, result in zip(rows_of(states.field("buckets")), hdr.finish(states).to_pylist(), strict=True):
        if not buckets:
            assert result is None
            continue
        middles = hdr.layout.middle(np.array([key for key, _ in buckets])).tolist()
        counts = [count for _, count in buckets]
        mean = 0.0
        for middle, count in zip(middles, counts, strict=True):
            mean += float(middle) * float(count)
        mean /= sum(counts)
        variance = 0.0
        for middle, count in zip(middles, counts, strict=True):
            variance += (middle - mean) * (middle - mean) * count
        variance = variance / sum(counts) * 0.1 * 0.1
        assert (result["count"], result["mean"], result["var"]) == (sum(counts), mean * 0.1, variance)
        assert result["stdev"] == math.sqrt(variance)
        keys = spread(buckets)
        for q, read in zip(QUANTILES, result["quantiles"].values(), strict=True):
            rank = max(math.floor(percentile(q) * len(keys) / 100.0 + 0.5), 1)
            end = hdr.layout.highest if q else hdr.layout.lowest
            assert read == int(end(np.array([keys[rank - 1]]))[0]) / 10


@pytest.mark.parametrize("seed", range(5))
def test_dds_reads_what_its_buckets_say(seed):
    x, groups = random_values(seed)
    x[::3] *= -1.0
    x[::17], x[::41], x[::43] = 0.0, np.inf, -np.inf
    dds = aggr.Dds(QUANTILES, 0.02)
    states = dds.reduce(pa.array(x), groups)
    for i, result in enumerate(dds.finish(states).to_pylist()):
        values_of_group = np.sort(x[groups.ids == i])
        if not len(values_of_group):
            assert result is None
            continue
        for q, read in zip(QUANTILES, result["quantiles"].values(), strict=True):
            true = float(values_of_group[math.floor(q * (len(values_of_group) - 1))])
            if math.isinf(true) or true == 0.0:
                assert read == true
                continue
            value = dds.mapping._values(dds.mapping.keys(np.array([abs(true)])))[0]
            assert read == min(
                max(math.copysign(value, true), max(values_of_group[0], -1.7976931348623157e308)), values_of_group[-1]
            )


@pytest.mark.parametrize("accuracy", [0.3, 0.01, 1e-4])
def test_values_of_keys_do_not_depend_on_how_many_are_asked(accuracy):
    mapping = LogarithmicMapping(accuracy)
    keys = np.random.default_rng(1).integers(-50, 60, 1000)
    one_by_one = [mapping.values(np.array([key]))[0] for key in keys]
    assert mapping.values(keys).tolist() == one_by_one
    gamma = Fraction(1) + 2 * Fraction(accuracy) / (1 - Fraction(accuracy))
    for key in (-50, 0, 59):
        exact = float(2 * gamma**key / (1 + gamma))
        assert math.isclose(mapping.values(np.full(1000, key))[0], exact, rel_tol=1e-9)
