"""hll and its serialized bytes, compared with the package of Apache DataSketches."""

from __future__ import annotations

import os
import struct

import numpy as np
import pyarrow as pa
import pytest

from aggr import Groups, Hll
from aggr.arrow.damaged_state import DamagedState
from aggr.interchange.hll_sketch import to_hll_sketch
from tests.aggr.test_approx_count_distinct import SEED, floats, random_integers, texts

datasketches = pytest.importorskip("datasketches", reason="datasketches has no wheels for Python 3.14 and newer")

TRIALS = int(os.environ.get("TRIALS", "40"))


def hll_sketch(values, lg_k: int = 8):
    sketch = datasketches.hll_sketch(lg_k, datasketches.HLL_8)
    for value in values:
        sketch.update(value)
    return sketch


def ours(values: pa.Array, lg_k: int = 8) -> pa.StructArray:
    return Hll(lg_k).reduce(values, Groups.single(len(values)))


def registers(states: pa.StructArray) -> bytes:
    return states.field("registers")[0].as_py()


@pytest.mark.parametrize("kind", [random_integers, floats, texts])
@pytest.mark.parametrize("size", [60, 400, 3000])
def test_registers_are_theirs(kind, size):
    values = kind(size, np.random.default_rng(size))
    assert registers(ours(values)) == hll_sketch(values.to_pylist()).serialize_updatable()[40:]
    if kind is texts:
        assert ours(values.cast(pa.binary())).equals(ours(values))


def test_few_values_are_coupons_of_theirs():
    """A list of theirs has a header of 8 bytes, and coupons with the zeros above the address."""
    values = random_integers(7, np.random.default_rng(1))
    coupon_values = {
        c & (2**26 - 1): c >> 26 for c in struct.unpack("<7I", hll_sketch(values.to_pylist()).serialize_compact()[8:])
    }
    coupons = struct.unpack("<7I", registers(ours(values)))
    assert list(coupons) == sorted(coupons)
    assert {c >> 6: c & 63 for c in coupons} == coupon_values


@pytest.mark.parametrize("size", [0, 1, 8, 9, 23, 24, 25, 26, 100, 2000])
def test_bytes_are_read_by_them(size):
    values = random_integers(size, np.random.default_rng(size))
    states = Hll(8).reduce(values, Groups.of(np.zeros(size, int), 2)).take(pa.array([1, None, 0]))
    empty, null, sketch = to_hll_sketch(states, Hll(8)).to_pylist()
    assert null is None
    assert datasketches.hll_sketch.deserialize(empty).is_empty()
    read = datasketches.hll_sketch.deserialize(sketch)
    assert read.lg_config_k == 8
    union = datasketches.hll_union(8)
    for half in (values[: size // 2], values[size // 2 :]):  # so that theirs is out of order as well
        union.update(hll_sketch(half.to_pylist()))
    expected = union.get_result(datasketches.HLL_8)
    again = datasketches.hll_union(8)
    again.update(read)
    again.update(hll_sketch(values.to_pylist()))  # which adds nothing: the coupons are the same
    assert read.get_estimate() == pytest.approx(size, rel=0.12)
    if size > 25:
        assert again.get_result(datasketches.HLL_8).serialize_updatable()[40:] == expected.serialize_updatable()[40:]
        assert size < 100 or read.get_estimate() == pytest.approx(expected.get_estimate(), rel=1e-12)
    elif size < 25:
        assert again.get_estimate() == pytest.approx(size, rel=1e-6)


@pytest.mark.parametrize("lg_k", [8, 12])
def test_groups_and_merges_of_every_kind(lg_k):
    """Coupons with coupons, with registers, and so many that they become registers."""
    rng, coupon_limit = np.random.default_rng(lg_k), 3 * 2**lg_k // 32
    sizes = rng.permutation(
        [0, 1, coupon_limit // 2, coupon_limit, coupon_limit + 1, 2 * coupon_limit, 10 * coupon_limit] * 3
    )
    ids = np.repeat(np.arange(len(sizes)), sizes)
    values = pa.array(rng.integers(0, 2**40, len(ids)))
    states = Hll(lg_k).reduce(values, Groups.of(ids, len(sizes)))
    assert {len(state) for state in states.field("registers").to_pylist()} >= {0, 4 * coupon_limit, 1 << lg_k}
    for fold in (1, 2, 5, len(sizes)):
        merged = Hll(lg_k).merge(states, Groups.of(np.arange(len(sizes)) % fold, fold))
        assert merged.equals(Hll(lg_k).reduce(values, Groups.of(ids % fold, fold)))


@pytest.mark.slow
def test_counts_lie_within_three_standard_errors():
    print("seed", SEED)
    rng, errors = np.random.default_rng(SEED), []
    for _ in range(TRIALS):
        number = int(10 ** rng.uniform(0, 6))
        values = pa.array(np.arange(number) * int(rng.integers(1, 1000)) + int(rng.integers(-(2**40), 2**40)))
        state = ours(values, 12)
        (estimate,) = Hll(12).finish(state).to_pylist()
        if number <= 300:
            assert estimate == number
        errors.append(abs(estimate / number - 1) * 64 / 1.04)
    assert sum(error > 3 for error in errors) <= 1 + TRIALS // 100
    assert max(errors) < 4.5


@pytest.mark.parametrize(
    "damaged",
    [b"\1\2\3", bytes(255), bytes([64] * 256), bytes(8), struct.pack("<2I", 2 << 6 | 1, 1 << 6 | 1), b"\1" * 100],
)
def test_damaged_states_are_refused(damaged):
    states = Hll(8).own_state.pack({"registers": pa.array([damaged], pa.binary())}, 1)
    with pytest.raises(DamagedState, match="a damaged state of hll"):
        Hll(8).finish(states)
