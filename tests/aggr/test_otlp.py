"""States of exponential as messages of OTLP and back, compared with OpenTelemetry's own messages."""

from __future__ import annotations

import math
import os

import numpy as np
import pyarrow as pa
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint as Point

import aggr
from aggr import Groups
from aggr.arrow.bit_equality import same_bits
from aggr.interchange.otlp import bucket_values, from_otlp, to_otlp
from tests.aggr.test_exponential_histogram import buckets_of, by_the_sdk, dense, state_of

TRIALS = int(os.environ.get("TRIALS", "20"))
FUNCTION = aggr.Exponential((0.5,))


def drawn(rng: np.random.Generator) -> np.ndarray:
    n = int(rng.integers(0, 200))
    values = rng.lognormal(rng.normal() * 20, rng.random() * 9, n) * rng.choice([-1, 1], n)
    values[rng.random(n) < 0.1] = 0.0
    return values


def read(function: aggr.Exponential = FUNCTION, **fields) -> pa.StructArray:
    return from_otlp(pa.array([Point(**fields).SerializeToString()]), function)


def test_there_and_back_are_the_same_bits():
    rng = np.random.default_rng(1)
    for _ in range(TRIALS):
        function = aggr.Exponential((0.5,), int(rng.integers(-11, 21)), int(rng.choice([2, 20, 160])))
        columns = [state_of(function, np.rint(drawn(rng) * 64)[:40] / 64) for _ in range(3)]
        states = pa.concat_arrays([*columns, pa.nulls(1, columns[0].type)])
        back = from_otlp(to_otlp(states, function), function)
        for name in ("kept_scale", "positive", "negative", "zero", "min", "max"):
            assert same_bits(back.drop_null().field(name), states.drop_null().field(name)), name
        sums = [
            [result and result["sum"] for result in function.finish(column).to_pylist()] for column in (back, states)
        ]
        assert sums[0] == sums[1]  # rounded once
        assert back.is_null().to_pylist() == [False, False, False, True]


def test_messages_say_what_the_states_hold():
    function = aggr.Exponential((0.5,), 3, 20)
    states = state_of(function, np.array([1.0, 2.0, 2.0, -8.0, 0.0, math.nan]))
    point = Point.FromString(to_otlp(states, function)[0].as_py())
    assert (point.count, point.sum, point.zero_count, point.scale, point.min, point.max) == (5, -3.0, 1, 3, -8.0, 2.0)
    assert (dense(point.positive), dense(point.negative)) == ({-1: 1, 7: 2}, {23: 1})
    empty = Point.FromString(to_otlp(state_of(function, np.array([math.inf, 1.0])), function)[0].as_py())
    assert (empty.count, empty.HasField("max")) == (1, False)


def test_what_the_sdk_has_counted_is_read():
    rng = np.random.default_rng(2)
    for _ in range(TRIALS):
        values = np.abs(drawn(rng))
        if not len(values):
            continue
        data_point = by_the_sdk(values.tolist(), 160, 20)
        side = Point.Buckets(offset=data_point.positive.offset, bucket_counts=data_point.positive.bucket_counts)
        states = read(
            count=data_point.count, sum=data_point.sum, scale=data_point.scale, zero_count=data_point.zero_count,
            positive=side, min=data_point.min, max=data_point.max,
        )  # fmt: skip
        state = state_of(FUNCTION, values)
        for name in ("kept_scale", "positive", "negative", "zero", "min", "max"):
            assert same_bits(states.field(name), state.field(name)), name


def test_finer_and_wider_messages_are_read_at_a_coarser_scale():
    side = Point.Buckets(offset=-5, bucket_counts=[1, 0, 2, 3, 4, 5, 6])  # keys -5 to 1, of scale 6
    coarse = read(count=21, scale=6, positive=side, function=aggr.Exponential((0.5,), 5))
    assert (buckets_of(coarse, "positive"), coarse.field("kept_scale")[0].as_py()) == ({-3: 1, -2: 2, -1: 7, 0: 11}, 5)
    few = read(count=21, scale=6, positive=side, function=aggr.Exponential((0.5,), 20, 3))
    assert (buckets_of(few, "positive"), few.field("kept_scale")[0].as_py()) == ({-2: 1, -1: 9, 0: 11}, 4)
    finest = read(count=3, scale=22, positive=Point.Buckets(offset=-1, bucket_counts=[1, 1, 0, 0, 1]))
    assert (buckets_of(finest, "positive"), finest.field("kept_scale")[0].as_py()) == ({-1: 1, 0: 2}, 20)


def test_what_a_message_lacks_is_made_of_its_buckets():
    states = read(count=4, scale=0, zero_count=1, positive=Point.Buckets(offset=0, bucket_counts=[2, 1]))
    result = FUNCTION.finish(states)[0].as_py()
    values = [4 / 3, 8 / 3]  # within a third of all from 1 to 2, and from 2 to 4
    assert (result["count"], result["min"]) == (4, 0.0)
    assert [result["max"], result["sum"]] == pytest.approx([values[1], 2 * values[0] + values[1]], rel=1e-15)


@pytest.mark.parametrize("accuracy", [0.05, 0.001])
def test_a_dds_of_the_buckets_is_within_both_accuracies(accuracy):
    rng, quantiles = np.random.default_rng(3), (0.01, 0.5, 0.9, 0.99)
    function = aggr.Exponential((0.5,), max_buckets=80)
    for _ in range(TRIALS):
        values = drawn(rng)
        if not len(values):
            continue
        states = pa.concat_arrays([pa.nulls(1, state_of(function, values).type), state_of(function, values)])
        table = bucket_values(states, function).combine_chunks()
        assert table["row"].to_pylist() == [1] * table.num_rows
        assert sum(table["weight"].to_pylist()) == len(values)
        dds = aggr.Dds(quantiles, accuracy)
        sketch = dds.reduce(table["value"].chunk(0), Groups.single(table.num_rows), table["weight"].chunk(0))
        alpha = function.finish(states)[1].as_py()["relative_accuracy"]
        tolerance = (alpha + accuracy + alpha * accuracy) * (1 + 1e-12)
        for q, estimate in zip(quantiles, dds.finish(sketch)[0].as_py()["quantiles"].values(), strict=True):
            true = np.sort(values)[math.floor(q * (len(values) - 1))]
            assert abs(estimate - true) <= tolerance * abs(true)


SIDE = Point.Buckets(offset=0, bucket_counts=[1])
BAD = {
    "cannot be parsed as an ExponentialHistogramDataPoint": b"\xff\xff",
    "has the count 3, and its buckets contain 1 values": Point(count=3, positive=SIDE),
    "has scale -12": Point(count=1, scale=-12, positive=SIDE),
    "has a bucket 1024, which lies outside the range of doubles": Point(
        count=1, positive=Point.Buckets(offset=1024, bucket_counts=[1])
    ),
    "has a bucket -1076, which lies outside the range of doubles": Point(
        count=1, positive=Point.Buckets(offset=-1076, bucket_counts=[1])
    ),
    "has the count 18446744073709551615, and its buckets contain 18446744073709551615 values": Point(
        count=2**64 - 1, zero_count=2**64 - 1
    ),
    "that is impossible for the values in its buckets": Point(count=1, positive=SIDE, min=5.0, max=5.0),
    "has the min 2.0, which is above its max, 1.5": Point(count=1, positive=SIDE, min=2.0, max=1.5),
    "must be finite": Point(count=1, positive=SIDE, max=math.inf),
}


@pytest.mark.parametrize("sentence", BAD)
def test_bad_messages_are_refused_by_row(sentence):
    bad = BAD[sentence]
    messages = pa.array([None, Point().SerializeToString(), bad if isinstance(bad, bytes) else bad.SerializeToString()])
    with pytest.raises(ValueError, match=sentence) as refused:
        from_otlp(messages, FUNCTION)
    assert " 2" in str(refused.value)
    assert len(str(refused.value)) <= 300


def test_other_columns_and_states_are_refused():
    with pytest.raises(TypeError, match="must be an Arrow column of type binary; got string"):
        from_otlp(pa.array(["x"]), FUNCTION)
    for write in (to_otlp, bucket_values):
        with pytest.raises(ValueError, match="max_buckets"):
            write(state_of(aggr.Exponential(max_buckets=5), np.array([1.0])), FUNCTION)
