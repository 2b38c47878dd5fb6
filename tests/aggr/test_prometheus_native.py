"""States of exponential as native histograms of Prometheus and back, compared with answers of Prometheus."""

from __future__ import annotations

import base64
import json
import math
import os

import numpy as np
import pyarrow as pa
import pytest

import aggr
from aggr.arrow.bit_equality import same_bits
from aggr.interchange.prometheus import from_prometheus, remote_message, to_prometheus, to_remote_histograms
from aggr.interchange.prometheus_messages import prometheus_message
from tests.aggr.prometheus_native import ANSWERS, COUNT, QUANTILES
from tests.aggr.test_exponential_histogram import buckets_of, key_by_integers, state_of
from tests.aggr.test_otlp import drawn

TRIALS = int(os.environ.get("TRIALS", "20"))
FUNCTION = aggr.Exponential((0.5,), 8)
Histogram, Span = prometheus_message("Histogram"), prometheus_message("BucketSpan")
SPAN = Span(offset=1, length=1)


def read(function: aggr.Exponential = FUNCTION, **fields) -> pa.StructArray:
    return from_prometheus(pa.array([Histogram(**fields).SerializeToString()]), function)


def upper_bounds(message, sign: str) -> dict[int, int]:
    """Read buckets as the format says it, one by one: the number i of each, which ends at 2^(i / 2^schema)."""
    at, count, buckets, deltas = 0, 0, {}, iter(getattr(message, f"{sign}_delta"))
    for span in getattr(message, f"{sign}_span"):
        at += span.offset
        for _ in range(span.length):
            count += next(deltas)
            buckets[at] = count
            at += 1
    assert next(deltas, None) is None
    return buckets


def test_there_and_back_are_the_same_bits():
    rng = np.random.default_rng(1)
    for _ in range(TRIALS):
        function = aggr.Exponential((0.5,), int(rng.integers(-4, 9)), int(rng.choice([160, 1000])))
        values = [np.rint(drawn(rng) * 64)[:40] / 64 for _ in range(3)]
        values[1] = np.append(values[1], rng.choice([math.inf, -math.inf, math.nan], 3))
        columns = [state_of(function, row) for row in values]
        states = pa.concat_arrays([*columns, pa.nulls(1, columns[0].type)])
        back = from_prometheus(to_prometheus(states, function), function)
        read_back, written_states = back.drop_null(), states.drop_null()
        same = ("kept_scale", "positive", "negative", "zero", "nan", "positive_infinity", "negative_infinity")
        for name in same:
            assert same_bits(read_back.field(name), written_states.field(name)), name
        results = [function.finish(column).to_pylist() for column in (back, states)]
        for i, (reference, ours) in enumerate(zip(*results, strict=True)):
            assert (reference is None) == (ours is None)
            if ours is None:
                continue
            if i != 1:
                assert reference["sum"] == ours["sum"]  # rounded once
            for name in ("min", "max"):
                assert reference[name] == pytest.approx(ours[name], rel=2 * ours["relative_accuracy"])
        assert back.is_null().to_pylist() == [False, False, False, True]


def test_messages_say_which_bucket_ends_where():
    rng = np.random.default_rng(2)
    for _ in range(TRIALS):
        schema, values = int(rng.integers(-4, 9)), np.append(np.abs(drawn(rng)), [1.0, 2.0, 4.0])
        values = np.concatenate([values[values > 0], np.exp2(rng.integers(-9, 9, 5).astype(float))])
        function = aggr.Exponential((0.5,), schema, 1_000_000)
        message = Histogram.FromString(to_prometheus(state_of(function, -values), function)[0].as_py())
        expected = {}
        for value in values.tolist():
            i = key_by_integers(value, schema) + 1  # 2^(i - 1) < value^(2^schema) <= 2^i
            expected[i] = expected.get(i, 0) + 1
        assert (message.schema, message.sample_count) == (schema, len(values))
        assert upper_bounds(message, "negative") == expected
        assert upper_bounds(message, "positive") == {}


def test_finer_scales_are_written_at_the_finest_schema():
    values = np.array([1.0, 1.0001, 1.0002, 1.002])
    fine, coarse = aggr.Exponential((0.5,)), aggr.Exponential((0.5,), 8)
    assert fine.finish(state_of(fine, values))[0].as_py()["scale"] > 8
    assert to_prometheus(state_of(fine, values), fine).equals(to_prometheus(state_of(coarse, values), coarse))


def test_special_values_are_counted_as_the_client_of_go_counts_them():
    states = state_of(FUNCTION, np.array([math.inf, math.inf, -math.inf, math.nan, 1.7976931348623157e308, 0.0]))
    message = Histogram.FromString(to_prometheus(states, FUNCTION)[0].as_py())
    assert upper_bounds(message, "positive") == {1024 << 8: 1, (1024 << 8) + 1: 2}
    assert upper_bounds(message, "negative") == {(1024 << 8) + 1: 1}
    assert (message.sample_count, message.zero_count, math.isnan(message.sample_sum)) == (6, 1, True)
    coarse = aggr.Exponential((0.5,), -3)
    message = Histogram.FromString(to_prometheus(state_of(coarse, np.array([math.inf])), coarse)[0].as_py())
    assert (upper_bounds(message, "positive"), message.sample_sum) == ({129: 1}, math.inf)
    empty = Histogram.FromString(to_prometheus(FUNCTION.zero(1, pa.float64()), FUNCTION)[0].as_py())
    assert list(empty.positive_span) == [Span(offset=0, length=0)]  # or Prometheus takes it for a classic one
    one_span = [Span(offset=0, length=1)]
    back = read(sample_count=1, sample_sum=math.inf, schema=8, positive_span=one_span, positive_delta=[1])
    assert FUNCTION.finish(back)[0].as_py()["sum"] == pytest.approx(1.0, rel=0.002)  # of the one bucket


@pytest.mark.parametrize("i", range(39))
def test_prometheus_says_the_same(i):
    case = json.loads(ANSWERS.read_text())[i]
    message, federated = (base64.b64decode(case[name]) for name in ("message", "federated"))
    schema = Histogram.FromString(message).schema
    function = aggr.Exponential(QUANTILES, schema, 10_000)
    states = from_prometheus(pa.array([message]), function)
    assert to_prometheus(states, function)[0].as_py() == message
    assert same_bits(from_prometheus(pa.array([federated]), function), states)
    result, answers = function.finish(states)[0].as_py(), {k: float(v) for k, v in case["answers"].items()}
    assert (result["count"], result["sum"]) == (COUNT, answers["sum"]) == (answers["count"], answers["sum"])
    for q, ours in result["quantiles"].items():
        answer = answers[str(float(q))]
        assert abs(ours - answer) <= result["relative_accuracy"] * abs(answer) * (1 + 1e-12), q  # the same bucket
    top = max(buckets_of(states, "positive"))
    assert answers["1.0"] == pytest.approx(2.0 ** ((top + 1) / 2.0**schema), rel=1e-15)


def native_histogram(**fields):
    return Histogram(**({"sample_count": 1, "positive_span": [SPAN], "positive_delta": [1]} | fields))


BAD = {
    "cannot be parsed as an io.prometheus.client.Histogram": b"\xff\xff",
    "has the count 3, and its sparse buckets contain 1 values": native_histogram(sample_count=3),
    "has the count 0, and its sparse buckets contain 1 values": native_histogram(sample_count=0, sample_sum=math.nan),
    "has the count 5, and its sparse buckets contain 0 values": Histogram(sample_count=5),  # a classic one
    "has schema -53; only exponential histograms, with a schema from -4 to 8": native_histogram(schema=-53),
    "has schema 9": native_histogram(schema=9),
    "has the count 0.5": native_histogram(sample_count_float=0.5),
    "has the count nan": native_histogram(zero_count_float=math.nan),
    "has the count 1.5": native_histogram(positive_count=[1.5]),
    "has the count -1": native_histogram(positive_delta=[-1]),
    "has the count 9223372036854775808": native_histogram(sample_count=2**63, zero_count=2**63 - 1),
    "has spans that overlap": native_histogram(positive_span=[SPAN, Span(offset=-1, length=0)]),
    "whose lengths do not add up to its 1 counts": native_histogram(positive_span=[Span(offset=0, length=2**32 - 1)]),
    "has a bucket 1026, which lies outside the range of doubles": native_histogram(
        positive_span=[Span(offset=1026, length=1)]
    ),
    "has a bucket -1075, which lies outside the range of doubles": native_histogram(
        positive_span=[Span(offset=-1075, length=1)]
    ),
    "that is impossible for the values in its buckets": Histogram(sample_sum=1.0),
}


@pytest.mark.parametrize("sentence", BAD)
def test_bad_messages_are_refused_by_row(sentence):
    bad = BAD[sentence]
    bad = bad if isinstance(bad, bytes) else bad.SerializeToString()
    messages = pa.array([None, Histogram().SerializeToString(), bad])
    with pytest.raises(ValueError, match=sentence) as refused:
        from_prometheus(messages, FUNCTION)
    assert "message 2" in str(refused.value)
    assert len(str(refused.value)) <= 300


@pytest.mark.slow
def test_damaged_messages_give_a_state_or_a_sentence():
    rng, function = np.random.default_rng(3), aggr.Exponential((0.5,), 8)
    for _ in range(20 * TRIALS):
        message = bytearray(to_prometheus(state_of(function, drawn(rng)[:9]), function)[0].as_py())
        for at in rng.integers(0, len(message), 2):
            message[at] = rng.integers(0, 256)
        try:
            states = from_prometheus(pa.array([bytes(message)]), function)
        except ValueError as refused:
            assert str(refused).startswith("message 0")  # noqa: PT017
        else:
            function.finish(states)


def test_other_columns_and_states_are_refused():
    with pytest.raises(TypeError, match="Prometheus messages must be an Arrow column of type binary; got string"):
        from_prometheus(pa.array(["x"]), FUNCTION)
    with pytest.raises(ValueError, match="max_buckets"):
        to_prometheus(state_of(aggr.Exponential((0.5,), 8, 5), np.array([1.0])), FUNCTION)
    few = aggr.Exponential((0.5,), max_buckets=2)
    wide = state_of(few, np.array([1e-300, 1e300]))
    states = pa.concat_arrays([pa.nulls(1, wide.type), wide])
    with pytest.raises(ValueError, match=r"state 1 has scale -1[01]; native histograms .* schemas of at least -4"):
        to_prometheus(states, few)


def test_errors_count_rows_from_the_first_row():
    function = aggr.exponential("x", scale=-8).function
    states = function.reduce(pa.array([1.0]), aggr.Groups.single(1))
    with pytest.raises(ValueError, match="state 1000 has scale -8"):
        to_remote_histograms(states, function, first_row=1000)


def test_the_name_of_a_remote_message_is_checked():
    with pytest.raises(ValueError, match=r"'Nope' is not the name of a message.*; use one of .*ReadRequest, .*Label, "):
        remote_message("Nope")
