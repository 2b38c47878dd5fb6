"""approx_count_distinct, its set operations and its bytes, compared with the package of Apache DataSketches."""

from __future__ import annotations

import math
import os
import struct

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr import ApproxCountDistinct, Groups
from aggr.arrow.damaged_state import DamagedState
from aggr.interchange.theta_sketch import from_theta_sketch, to_theta_sketch
from aggr.tables import set_operations
from aggr.tables.accessors import bounds

datasketches = pytest.importorskip("datasketches", reason="datasketches has no wheels for Python 3.14 and newer")

TRIALS = int(os.environ.get("TRIALS", "40"))
SEED = int(os.environ.get("SEED", "29"))
SIZES = (0, 1, 2, 31, 32, 33, 63, 64, 65, 100, 5000)
SPARK = (  # by Spark 4.3: SELECT hex(theta_sketch_agg(id, 4)) FROM range(100)
    "0204033a011acc936a918b0b0be72c0f1057e1c72df6c88282f9cf6d19e16f188993241a609050d48321d8ac4ad90e37b3cd"
    "c48cbe847cf84cd7d310b26b31ad78c3b4a027f8c606fbd5e208e2a84314369cdf9230678cf87f915eba7a2652b374198cee"
    "b08aad29bc2f2322b464d242759fd19422faf31a4354a9e08545494be26bed49d1"
)


def theta_sketch(values, lg_k: int = 5):
    sketch = datasketches.update_theta_sketch(lg_k)
    for value in values:
        sketch.update(value)
    sketch.trim()
    return sketch.compact()


def ours(values: pa.Array, k: int = 32) -> pa.StructArray:
    return ApproxCountDistinct(k).reduce(values, Groups.single(len(values)))


def written(states: pa.StructArray, k: int = 32) -> bytes:
    return to_theta_sketch(states, ApproxCountDistinct(k))[0].as_py()


def random_integers(size: int, rng: np.random.Generator) -> pa.Array:
    return pa.array(rng.integers(-(2**63), 2**63 - 1, size, endpoint=True))


def floats(size: int, rng: np.random.Generator) -> pa.Array:
    ugly = [math.nan, -math.nan, 0.0, -0.0, math.inf, -math.inf, 5e-324]
    bits = rng.integers(-(2**63), 2**63 - 1, size, endpoint=True).view(np.float64)  # NaN of many kinds among them
    return pa.array(np.where(rng.random(size) < 0.2, rng.choice(ugly, size), bits))


def texts(size: int, rng: np.random.Generator) -> pa.Array:
    letters = np.array(list("aé☃🎈 "))
    return pa.array(["".join(rng.choice(letters, 1 + at % 40)) for at in range(size)], pa.string())


@pytest.mark.long
@pytest.mark.parametrize("kind", [random_integers, floats, texts])
@pytest.mark.parametrize("size", SIZES)
def test_bytes_are_those_of_a_trimmed_sketch(kind, size):
    values = kind(size, np.random.default_rng(size))
    assert written(ours(values)) == theta_sketch(values.to_pylist()).serialize()
    if kind is texts:
        assert ours(values.cast(pa.binary())).equals(ours(values))
    if kind is random_integers:
        fixed = pa.array([struct.pack("<q", value) for value in values.to_pylist()], pa.binary(8))
        assert ours(fixed).equals(ours(values))  # a number is hashed as its bytes


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.int32(), pa.uint32(), pa.float32()], ids=str)
def test_narrow_numbers_are_wide_ones(kind):
    values = pa.array([0, 1, 100, 7, 1], kind)
    assert ours(values).equals(ours(values.cast(pa.int64() if pa.types.is_integer(kind) else pa.float64())))


@pytest.mark.parametrize("k", [16, 17, 50, 4096])
def test_groups_keep_the_smallest_hashes_and_the_next(k):
    rng = np.random.default_rng(k)
    values, ids = rng.integers(0, 3 * k, 20 * k), rng.integers(0, 7, 20 * k)
    ids[ids == 3] = 4  # a group without rows
    ids[: 10 * k] = 6
    sketches = ApproxCountDistinct(k).reduce(pa.array(values), Groups.of(ids, 7)).field("sketch").to_pylist()
    for group, sketch in enumerate(sketches):
        hashes = sorted({hash_of for v in set(values[ids == group].tolist()) for hash_of in theta_sketch([v])})
        assert np.frombuffer(sketch["hashes"], "<i8").tolist() == hashes[:k]
        assert sketch["theta"] == (hashes[k] if len(hashes) > k else 2**63 - 1)


def test_empty_text_is_a_value():
    """DataSketches passes it over, and DuckDB, Spark's count(DISTINCT) and count_distinct do not."""
    values = pa.array(["", "a", None, ""])
    assert ApproxCountDistinct().finish(ours(values, 4096)).to_pylist() == [2]
    assert theta_sketch(["", "a"]).get_estimate() == 1


@pytest.mark.parametrize(
    "kind", [pa.timestamp("us"), pa.date32(), pa.bool_(), pa.decimal128(9, 2), pa.list_(pa.int32())]
)
def test_types_without_a_rule_are_refused(kind):
    with pytest.raises(TypeError, match="takes integers, floats, strings and bytes; cast others to strings"):
        ours(pa.array([None], kind))


def test_up_to_k_values_are_counted_exactly():
    for size in (0, 1, 4095, 4096):
        values = np.tile(np.arange(size), 3)
        assert ApproxCountDistinct().finish(ours(pa.array(values, pa.int64()), 4096)).to_pylist() == [size]


@pytest.mark.slow
def test_counts_lie_within_three_standard_errors():
    """Of a thousand that are right, three lie without; ``TRIALS=1000`` draws so many, up to 10^8 values."""
    print("seed", SEED)
    rng, largest_exponent, errors = np.random.default_rng(SEED), 8 if TRIALS >= 1000 else 6, []
    for trial in range(TRIALS):
        number = int(10 ** rng.uniform(3, largest_exponent if trial % 50 == 0 else 6))
        values = pa.array(np.arange(number) * int(rng.integers(1, 1000)) + int(rng.integers(-(2**40), 2**40)))
        state = ours(values, 4096)
        high_low = bounds(state, 3)[0].as_py()
        assert (high_low["lower"] <= number <= high_low["upper"]) == (
            abs(high_low["estimate"] / number - 1) <= 3 / 64
        ) or number < 10**5
        errors.append(abs(high_low["estimate"] / number - 1) * 64)
        if number <= 4096:
            assert high_low["estimate"] == high_low["lower"] == high_low["upper"] == number
    assert sum(error > 3 for error in errors) <= 1 + TRIALS // 100
    assert max(errors) < 4.5


@pytest.mark.parametrize("size", [0, 10, 4096, 4097, 20_000, 400_000])
def test_bounds(size):
    values = np.random.default_rng(size).integers(0, 2**62, size)
    state, sketch = ours(pa.array(values), 4096), theta_sketch(values.tolist(), 12)
    for sigmas in (1, 2, 3):
        interval = bounds(state, sigmas)[0].as_py()
        assert interval["estimate"] == pytest.approx(sketch.get_estimate(), rel=1e-14)
        assert interval["lower"] == pytest.approx(sketch.get_lower_bound(sigmas), rel=1e-14)
        assert interval["upper"] == pytest.approx(sketch.get_upper_bound(sigmas), rel=1e-14)
        assert (interval["theta"], interval["retained"]) == (sketch.theta, sketch.num_retained)
    with pytest.raises(ValueError, match="in standard errors, must be finite and above 0; got 0"):
        bounds(state, 0)
    with pytest.raises(TypeError, match="states of count have no bounds; they have count"):
        bounds(aggr.Count().reduce(pa.array([1]), Groups.single(1)))


# Set operations

OVERLAPS = [(0, 0, 0), (5, 0, 0), (2000, 0, 0), (0, 2000, 0), (9, 9, 9), (20, 24, 8), (3000, 900, 500), (40, 9000, 40)]


@pytest.mark.parametrize("overlap", OVERLAPS, ids=str)
def test_set_operations_are_theirs(overlap):
    first, other, both = overlap
    values = np.random.default_rng(first).permutation(10**6)[: first + other - both]
    left, right = values[:first], values[first - both :]
    states = [ours(pa.array(side)) for side in (left, right)]
    sketches = [theta_sketch(side.tolist()) for side in (left, right)]
    union, intersection = datasketches.theta_union(5), datasketches.theta_intersection()
    for sketch in sketches:
        union.update(sketch)
        intersection.update(sketch)
    assert written(set_operations.union(*states)) == union.get_result().serialize()
    assert set_operations.union(*states).equals(ours(pa.array(values)))
    assert written(set_operations.intersection(*states)) == intersection.get_result().serialize()
    assert written(set_operations.difference(*states)) == datasketches.theta_a_not_b().compute(*sketches).serialize()
    (share,) = set_operations.jaccard(*states).to_pylist()
    assert share == (None if first + other == 0 else datasketches.theta_jaccard_similarity.jaccard(*sketches)[1])


def test_set_operations_row_by_row():
    rng = np.random.default_rng(3)
    sets = [[set(rng.integers(0, 30, rng.integers(0, 20)).tolist()) for _ in range(50)] for _ in range(2)]
    sides = []
    for column in sets:
        ids = np.repeat(np.arange(50), [len(values) for values in column])
        states = ApproxCountDistinct(32).reduce(pa.array([v for values in column for v in values]), Groups.of(ids, 50))
        sides.append(states)
    sides[1] = sides[1].take(pa.array([None, *range(1, 50)]))
    for operation, expected in (
        (set_operations.union, set.union),
        (set_operations.intersection, set.intersection),
        (set_operations.difference, set.difference),
    ):
        counts = ApproxCountDistinct(32).finish(operation(*sides)).to_pylist()
        assert counts == [None, *(len(expected(a, b)) for a, b in list(zip(*sets, strict=True))[1:])]
    shares = [len(a & b) / len(a | b) if a | b else None for a, b in zip(*sets, strict=True)]
    assert set_operations.jaccard(*sides).to_pylist() == [None, *shares[1:]]


def test_what_set_operations_refuse():
    state = ours(pa.array([1]))
    with pytest.raises(ValueError, match="with k=16 cannot be merged or read as k=32"):
        set_operations.union(state, ours(pa.array([1]), 16))
    with pytest.raises(ValueError, match="two columns of equal length; got 1 states and 2"):
        set_operations.jaccard(state, pa.concat_arrays([state, state]))
    with pytest.raises(TypeError, match="states of count are not sets"):
        set_operations.intersection(aggr.Count().reduce(pa.array([1]), Groups.single(1)), state)


# Bytes


@pytest.mark.parametrize("size", SIZES)
def test_bytes_there_and_back(size):
    states = ours(random_integers(size, np.random.default_rng(size)))
    assert from_theta_sketch(to_theta_sketch(states, ApproxCountDistinct(32)), ApproxCountDistinct(32)).equals(states)


def test_columns_of_sketches():
    function = ApproxCountDistinct(32)
    states = function.reduce(pa.array(np.arange(90)), Groups.of(np.minimum(np.arange(90) // 2, 9), 12))
    states = states.take(pa.array([None, 11, *range(10), None]))
    column = to_theta_sketch(states, function)
    assert from_theta_sketch(column, function).equals(states)
    sliced = pa.chunked_array([column.cast(pa.large_binary())[3:6], column.cast(pa.large_binary())[6:]])
    assert from_theta_sketch(sliced, function).equals(states[3:])
    assert from_theta_sketch(pa.nulls(2), function).null_count == 2


def test_their_sketches_are_read():
    values = np.arange(3000)
    update = datasketches.update_theta_sketch(7)
    for value in values.tolist():
        update.update(value)
    for sketch in (update.compact(), update.compact(False)):  # in no order, and not trimmed
        read = from_theta_sketch(pa.array([sketch.serialize()]), ApproxCountDistinct(32))
        assert read.equals(ours(pa.array(values)))
    few = theta_sketch(values.tolist(), 6)
    read = from_theta_sketch(pa.array([few.serialize()]), ApproxCountDistinct(4096))
    assert read.field("sketch")[0]["theta"].as_py() == few.theta64
    merged = ApproxCountDistinct().merge(pa.concat_arrays([read, ours(pa.array(values), 4096)]), Groups.single(2))
    assert merged.field("sketch")[0]["theta"].as_py() == few.theta64


def test_the_packed_sketch_of_spark_is_read():
    read = from_theta_sketch(pa.array([bytes.fromhex(SPARK)]), ApproxCountDistinct(16))
    assert read.equals(ours(pa.array(np.arange(100)), 16))


def changed(data: bytes, **bytes_at: int) -> pa.Array:
    data = bytearray(data)
    for place, byte in bytes_at.items():
        data[int(place[2:])] = byte
    return pa.array([None, bytes(data)])


@pytest.mark.parametrize(
    ("sketch", "message"),
    [
        (pa.array([None, b"1234567"]), "sketch 1 is not a compact Theta sketch, because it has fewer than 8 bytes"),
        (changed(theta_sketch([1, 2]).serialize(), at2=2), r"not a compact Theta sketch; call compact\(\)"),
        (changed(theta_sketch([1, 2]).serialize(), at1=2), "not in version 3 or 4"),
        (changed(theta_sketch([1, 2]).serialize(), at5=0x1B), "big-endian"),
        (changed(theta_sketch([1, 2]).serialize(), at6=0), "a seed other than 9001"),
        (changed(theta_sketch([1, 2]).serialize(), at8=3), "bytes are cut off, or followed by other bytes"),
        (changed(theta_sketch([1, 2]).serialize(), at11=255), "bytes are cut off, or followed by other bytes"),
        (changed(theta_sketch([1, 2]).serialize(), at0=4), "bytes are cut off, or followed by other bytes"),
        (pa.array([None, theta_sketch([1]).serialize() + b"\0"]), "bytes are cut off, or followed by other bytes"),
        (
            pa.array([None, theta_sketch([1, 2]).serialize()[:24] * 1 + theta_sketch([1]).serialize()[8:]]),
            "not distinct",
        ),
        (changed(bytes.fromhex(SPARK), at4=9), "bytes are cut off, or followed by other bytes"),
        (changed(bytes.fromhex(SPARK), at3=255), "bytes are cut off, or followed by other bytes"),
        (
            pa.array([None, bytes.fromhex(SPARK)[:3] + bytes([0, 4, *bytes.fromhex(SPARK)[5:16]]) + b"\xff" * 4]),
            "bytes are cut off",
        ),
    ],
)
def test_damaged_sketches_are_refused(sketch, message):
    with pytest.raises(ValueError, match=message):
        from_theta_sketch(sketch, ApproxCountDistinct())


def test_what_is_no_column_of_sketches():
    with pytest.raises(TypeError, match="Theta sketches must be an Arrow column of type binary; got string"):
        from_theta_sketch(pa.array(["a"]), ApproxCountDistinct())


def test_damaged_states_are_refused():
    state = ours(pa.array(np.arange(100)))
    theta, hashes = state.field("sketch")[0].as_py().values()
    for broken in (
        {"theta": theta, "hashes": hashes[8:16] + hashes[:8]},
        {"theta": theta, "hashes": hashes[:8] * 2},
        {"theta": theta, "hashes": hashes[:-1]},
        {"theta": struct.unpack("<q", hashes[-8:])[0], "hashes": hashes},
        {"theta": 0, "hashes": b""},
        {"theta": 2**63 - 1, "hashes": hashes + struct.pack("<q", theta)},
        {"theta": theta, "hashes": struct.pack("<q", 0)},
        {"theta": theta, "hashes": struct.pack("<q", -1)},
    ):
        sketch = pa.array([broken], state.field("sketch").type)
        damaged = ApproxCountDistinct(32).own_state.pack({"sketch": sketch}, 1)
        with pytest.raises(
            DamagedState, match="a damaged state of approx_count_distinct: its field 'sketch' contains hashes"
        ):
            ApproxCountDistinct(32).finish(damaged)
