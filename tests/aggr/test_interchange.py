"""States as HdrHistogram V2 and as DDSketch protobuf, compared with the packages that define these formats."""

from __future__ import annotations

import base64
import math
import struct
import zlib

import ddsketch
import numpy as np
import pyarrow as pa
import pytest
from ddsketch.pb import ddsketch_pb2 as pb
from ddsketch.pb.proto import DDSketchProto
from hdrh.histogram import HdrHistogram
from hypothesis import given
from hypothesis import strategies as st

from aggr.functions.ddsketch import Dds
from aggr.functions.hdrhistogram import Hdr
from aggr.groups.groups import Groups
from aggr.histograms import leb128
from aggr.histograms.column import Histograms
from aggr.interchange.ddsketch_proto import from_dds_proto, to_dds_proto
from aggr.interchange.hdr_v2 import from_hdr_v2, to_hdr_v2
from tests.conftest import cases_of

RNG = np.random.default_rng(17)
PERCENTILES = [0.0, 1.0, 14.5, 50.0, 90.0, 99.0, 99.9, 100.0]
QUANTILES = (0.0, 0.01, 0.25, 0.5, 0.9, 0.99, 1.0)
LATENCIES = RNG.lognormal(8, 2, 2000).astype(np.int64)


def states_of(function, *groups, kind=None):
    """One state per list of values."""
    ids = np.repeat(np.arange(len(groups)), [len(g) for g in groups])
    values = [v for g in groups for v in (g.tolist() if isinstance(g, np.ndarray) else g)]
    return function.reduce(pa.array(values, kind), Groups.of(ids, len(groups)))


# HdrHistogram


def their_hdr(values, digits, highest=2**40):
    histogram = HdrHistogram(1, highest, digits)
    for value in values:
        assert histogram.record_value(value)
    return histogram


def counts_of(histogram) -> dict[int, int]:
    counts = np.ctypeslib.as_array(histogram.counts)
    return {int(i): int(counts[i]) for i in np.flatnonzero(counts)}


def buckets_of(states, name, row=0) -> dict[int, int]:
    histograms = Histograms.from_arrow(states.slice(row, 1).field(name))
    return dict(zip(histograms.keys.tolist(), histograms.counts.tolist(), strict=True))


def payload_of(text) -> bytes:
    return zlib.decompress(base64.b64decode(text)[8:])


def text_with(head=None, counts=None, outer=None, compressed=True) -> str:
    """A text with some of its header's fields, or its counts, replaced."""
    fields = {"cookie": 0x1C849313, "length": None, "offset": 0, "digits": 3, "low": 1, "high": 1000, "ratio": 1.0}
    fields |= head or {}
    counts = b"\x02" if counts is None else counts
    fields["length"] = len(counts) if fields["length"] is None else fields["length"]
    data = struct.pack(">IIIIqqd", *fields.values()) + counts
    if compressed:
        packed = zlib.compress(data)
        data = struct.pack(">II", *(outer or (0x1C849314, len(packed)))) + packed
    return base64.b64encode(data).decode()


HDR_DATA = {
    "latencies": LATENCIES,
    "neighbours and single gaps": np.array([0, 1, 2, 4, 6, 7, 10, 4096, 4098]),
    "every magnitude": 2 ** np.arange(41) - (np.arange(41) % 2),
    "zeros": np.zeros(3, np.int64),
    "one": np.array([2**40]),
    "many": np.repeat([5, 1000], [70, 20_000]),
}


@pytest.mark.slow
@pytest.mark.parametrize("digits", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", HDR_DATA)
def test_their_hdr_reads_ours(name, digits):
    values, function = HDR_DATA[name], Hdr((0.5,), digits)
    states = states_of(function, values)
    text = to_hdr_v2(states, function)[0].as_py()
    histogram = HdrHistogram.decode(text)
    assert counts_of(histogram) == buckets_of(states, "buckets")
    assert histogram.get_total_count() == len(values)
    hdr = Hdr(tuple(round(p / 100, 10) for p in PERCENTILES), digits)
    result = hdr.finish(states)[0].as_py()
    quantiles = histogram.get_percentile_to_value_dict(PERCENTILES)
    assert list(result["quantiles"].values()) == [quantiles[p] for p in PERCENTILES]
    recorded = their_hdr(values.tolist(), digits)
    assert histogram.get_max_value() == recorded.get_max_value()
    assert histogram.get_min_value() == recorded.get_min_value()
    own_payload, package = payload_of(text), payload_of(recorded.encode())
    assert (
        own_payload[:24] + own_payload[32:40] == package[:24] + package[32:40]
    )  # all of the header but the highest value
    numbers = numbers_of(package[40:])
    assert own_payload[40:] == leb(*[0 if number == -1 else number for number in numbers])  # one 0: Java and Go write 0


@pytest.mark.parametrize("digits", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", HDR_DATA)
def test_we_read_their_hdr(name, digits):
    values, function = HDR_DATA[name], Hdr((0.5,), digits)
    histogram = their_hdr(values.tolist(), digits)
    states = from_hdr_v2(pa.array([histogram.encode().decode()]), function)
    expected = states_of(function, values)
    assert states.type == expected.type
    assert states.field("buckets").equals(expected.field("buckets"))
    decoded = HdrHistogram.decode(histogram.encode())
    assert states.field("min")[0].as_py() == decoded.get_min_value()
    assert states.field("max")[0].as_py() == decoded.get_max_value()


@pytest.mark.slow
@given(st.lists(st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 5000), max_size=8), max_size=5), st.integers(1, 5))
def test_hdr_round_trip(groups, digits):
    function = Hdr((0.5,), digits)
    states = states_of(function, *groups, kind=pa.int64())
    again = from_hdr_v2(to_hdr_v2(states, function), function)
    assert again.field("buckets").equals(states.field("buckets"))
    # the same state as of values at the edges of the outermost buckets
    layout = function.layout
    for group, low, high in zip(groups, again.field("min").to_pylist(), again.field("max").to_pylist(), strict=True):
        if not group:
            assert (low, high) == (None, None)
            continue
        low_key, high_key = layout.index(np.array([low, high])).tolist()
        assert layout.index(np.array([min(group), max(group)])).tolist() == [low_key, high_key]
        assert low == layout.lowest(np.array([low_key]))[0] <= min(group)
        assert high == layout.highest(np.array([high_key]))[0] >= max(group)
    assert from_hdr_v2(to_hdr_v2(again, function), function).equals(again)


@pytest.mark.slow
@given(st.lists(st.integers(0, 2**30), max_size=10), st.integers(1, 3))
def test_hdr_against_the_package_on_small_lists(values, digits):
    function = Hdr((0.5,), digits)
    states = states_of(function, values, kind=pa.int64())
    decoded = HdrHistogram.decode(to_hdr_v2(states, function)[0].as_py())
    assert counts_of(decoded) == buckets_of(states, "buckets")
    histogram = their_hdr(values, digits, 2**30)
    again = from_hdr_v2(pa.array([histogram.encode()]), function)
    assert again.field("buckets").equals(states.field("buckets"))


def test_the_largest_values_and_counts():
    for digits in range(1, 6):
        function = Hdr((0.5,), digits)
        states = states_of(function, [2**63 - 1, 0], kind=pa.int64())
        again = from_hdr_v2(to_hdr_v2(states, function), function)
        assert again.field("max")[0].as_py() == 2**63 - 1
        assert again.field("buckets").equals(states.field("buckets"))
    counts = np.array([2**63 - 1, 2**62, 2**62 - 1, 2**56, 2**55 - 1, 63, 64, 2**13 - 1, 2**13])
    for at in range(len(counts)):  # nine bytes next to fewer
        rolled = np.roll(counts, at)
        row = Histograms(np.array([4, 0, 5]), np.arange(9) * 3, rolled).to_arrow()
        states = Hdr().own_state.pack(
            {"nan": pa.array([0] * 3), "min": pa.array([0, None, 12]), "max": pa.array([9, None, 24]), "buckets": row},
            3,
        )
        assert from_hdr_v2(to_hdr_v2(states, Hdr()), Hdr()).field("buckets").equals(row)


def leb(*numbers: int) -> bytes:
    """Write numbers one after the other, naively."""
    data = b""
    for number in numbers:
        remaining, size = 2 * number if number >= 0 else -2 * number - 1, 1
        while remaining > 0x7F and size < 9:
            data += bytes([remaining & 0x7F | 0x80])
            remaining, size = remaining >> 7, size + 1
        data += bytes([remaining])
    return data


def numbers_of(data: bytes) -> list[int]:
    """Read numbers, naively."""
    numbers, at = [], 0
    while at < len(data):
        remaining = size = 0
        while True:
            byte, size, at = data[at], size + 1, at + 1
            remaining |= (byte if size == 9 else byte & 0x7F) << 7 * (size - 1)
            if size == 9 or byte < 0x80:
                break
        numbers.append(-(remaining + 1) // 2 if remaining & 1 else remaining // 2)
    return numbers


COUNTS = st.integers(1, 200) | st.integers(1, 2**63 - 1)


@pytest.mark.slow
@given(st.lists(st.dictionaries(st.integers(-100, 100) | st.integers(-(2**31), 2**31 - 1), COUNTS, max_size=6)))
def test_histograms_are_written_as_numbers(rows):
    rows = [dict(sorted(row.items())) for row in rows]
    first = np.array([min(row, default=0) for row in rows], np.int64)
    sizes = np.array([len(row) for row in rows], np.int64)
    keys, counts = (np.array([v for row in rows for v in part(row)], np.int64) for part in (dict.keys, dict.values))
    written = leb128.write(first, sizes, keys, counts)
    for low, row, data in zip(first.tolist(), rows, written.to_pylist(), strict=True):
        numbers, next_key = [], low
        for key, count in row.items():
            missing = key - next_key
            numbers += [*([0 if missing == 1 else -missing] if missing else []), count]
            next_key = key + 1
        assert data == leb(*numbers)
        assert numbers_of(data) == numbers
    padded = pa.concat_arrays([pa.array([b"\x02"]), written]).slice(1)  # rows that do not begin at the first byte
    parts, key_ends, broken = leb128.read(first, padded)
    assert [part.tolist() for part in parts] == [sizes.tolist(), keys.tolist(), counts.tolist()]
    assert key_ends.tolist() == [max(row) + 1 if row else 0 for row in rows]
    assert not broken.any()


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200), max_size=6)), st.integers(0, 9))
def test_any_numbers_are_read(rows, cut):
    data = [leb(*row)[: -cut or None] for row in rows]
    (sizes, keys, counts), key_ends, broken = leb128.read(np.full(len(rows), 5), pa.array(data, pa.binary()))
    expected, is_complete = [], []
    for row, part in zip(rows, data, strict=True):
        key, entries, at = 5, [], 0
        for number in row:
            at += len(leb(number))
            if at > len(part):
                break
            entries += [(key, number)] if number > 0 else []
            key = min(key + max(-number, 1), leb128.FAR)
        expected.append((entries, key))
        is_complete.append(not part or len(part) in np.cumsum([len(leb(number)) for number in row]))
    assert list(zip(keys.tolist(), counts.tolist(), strict=True)) == [
        entry for entries, _ in expected for entry in entries
    ]
    assert sizes.tolist() == [len(entries) for entries, _ in expected]
    assert key_ends.tolist() == [end for _, end in expected]
    assert (~broken).tolist() == is_complete


def test_hdr_merges_after_the_trip_as_before():
    function = Hdr((0.5, 0.99))
    states = states_of(function, LATENCIES[:300], LATENCIES[300:1000], LATENCIES[1000:])
    groups = Groups.of([0, 1, 0], 2)
    after = function.merge(from_hdr_v2(to_hdr_v2(states, function), function), groups)
    before = from_hdr_v2(to_hdr_v2(function.merge(states, groups), function), function)
    assert after.equals(before)


def test_hdr_nulls_empties_slices_and_chunks():
    function = Hdr((0.5,))
    states = pa.concat_arrays([states_of(function, [1, 5], []), pa.nulls(1, states_of(function, [1]).type)])
    states = states.take(pa.array([2, 1, 0, 2, 1, 0]))[1:]
    texts = to_hdr_v2(states, function)
    assert [text.is_valid for text in texts] == [True, True, False, True, True]
    again = from_hdr_v2(texts, function)
    assert again.equals(states)
    assert from_hdr_v2(pa.chunked_array([texts[:2], texts[2:]]).cast(pa.large_string()), function).equals(states)
    assert HdrHistogram.decode(texts[0].as_py()).get_total_count() == 0
    assert payload_of(texts[0].as_py())[40:] == b"\0"  # as Java and Go write an empty one
    empty = from_hdr_v2(pa.array([HdrHistogram(1, 1000, 3).encode()]), function)
    assert empty.equals(function.zero(1, pa.int64()))
    for none in (states[:0], function.zero(0, pa.int64())):
        assert len(from_hdr_v2(to_hdr_v2(none, function), function)) == 0
    assert from_hdr_v2(pa.nulls(2), function).null_count == 2
    with_nan = states_of(function, [math.nan, 1.0])
    assert from_hdr_v2(to_hdr_v2(with_nan, function), function).field("nan")[0].as_py() == 0


def test_the_ratio_carries_the_unit():
    function = Hdr((0.5,), unit=0.001)
    states = states_of(function, [2.7, 0.0004, 3.5])
    texts = to_hdr_v2(states, function)
    assert HdrHistogram.decode(texts[0].as_py()).get_int_to_double_conversion_ratio() == 0.001
    assert from_hdr_v2(texts, function).field("buckets").equals(states.field("buckets"))
    with pytest.raises(ValueError, match=r"text 0: .*ratio 0\.001 .*unit=None"):
        from_hdr_v2(texts, Hdr())
    with pytest.raises(ValueError, match=r"ratio 1\.0 .*unit=0\.001"):
        from_hdr_v2(pa.array([text_with()]), function)
    unit_hdr = Hdr((0.5,), unit=1.0)
    assert from_hdr_v2(pa.array([text_with()]), unit_hdr).type == unit_hdr.state_type(pa.float64())


def test_what_others_write_differently():
    """JavaScript: index offset 1, the ratio as an integer. A length with the header's. Plain V2. Bytes for text."""
    expected = from_hdr_v2(pa.array([text_with()]), Hdr())
    assert expected.field("max")[0].as_py() == 0
    javascript, without_fraction = text_with({"offset": 1, "ratio": 5e-324}), text_with({"length": 41})
    for text in (javascript, without_fraction, text_with(compressed=False), text_with({"cookie": 0x1C849303})):
        assert from_hdr_v2(pa.array([text]), Hdr()).equals(expected)
    assert from_hdr_v2(pa.array([text_with().encode()]), Hdr()).equals(expected)
    assert from_hdr_v2(pa.array([text_with(counts=b"\0\0\2\0\0\5\0")]), Hdr()).field("min")[0].as_py() == 2


CASES = {case["name"]: case for case in cases_of("hdrhistogram.json")}


def test_conformance_interop():
    case = CASES["hdr-interop_corrected"]
    reference = HdrHistogram.decode(case["encoded_base64"])
    states = from_hdr_v2(pa.array([case["encoded_base64"]]), Hdr())
    assert buckets_of(states, "buckets") == counts_of(reference)


def cut(text, size) -> str:
    """A text whose compressed part lacks its last bytes, and whose length says so."""
    packed = base64.b64decode(text)[8:-size]
    return base64.b64encode(struct.pack(">II", 0x1C849314, len(packed)) + packed).decode()


GOOD = text_with()
ONLY_V2 = r"and only V2 of HdrHistogram is supported; decode it with HdrHistogram 2\.1 or newer"
REFUSED = {
    "no base64": ("what?!", "base64"),
    "not ASCII": ("größer", "base64"),
    "nothing": ("", "unknown cookie 0x0"),
    "short": (base64.b64encode(b"\x1c\x84\x93").decode(), "unknown cookie"),
    "V0": (text_with(outer=(0x1C849309, 9)), f"a compressed histogram of version V0, {ONLY_V2}"),
    "V0 inside": (text_with({"cookie": 0x1C849308}), f"a histogram of version V0, {ONLY_V2}"),
    "V1": (text_with(outer=(0x1C849302, 9)), f"a compressed histogram of version V1, {ONLY_V2}"),
    "V1 inside": (text_with({"cookie": 0x1C849301}), f"a histogram of version V1, {ONLY_V2}"),
    "doubles": (text_with(outer=(0x0C72124F, 9)), "a compressed histogram of doubles, and only V2"),
    "an unknown version": (text_with(outer=(0x1C849305, 9)), "unknown cookie 0x1c849305; V2"),
    "no zlib": (base64.b64encode(struct.pack(">II", 0x1C849314, 4) + b"abcd").decode(), "damaged.*header"),
    "wrong length": (text_with(outer=(0x1C849314, 7)), r"damaged.*announces 7 compressed bytes, and there are 30"),
    "cut": (base64.b64encode(struct.pack(">II", 0x1C849314, 20) + base64.b64decode(GOOD)[8:28]).decode(), "damaged"),
    "short header": (
        base64.b64encode(struct.pack(">II", 0x1C849313, 0)).decode(),
        "damaged.*it has 8 bytes, and its header alone needs",
    ),
    "payload length": (text_with({"length": 5}), "damaged.*5 bytes of counts"),
    "negative highest": (text_with({"high": -1}), "damaged.*the highest value -1"),
    "digits": (text_with({"digits": 2}), "2 significant digits.*digits=3"),
    "lowest 0": (text_with({"low": 0}), "damaged.*lowest discernible value is 0"),
    "lowest below 0": (text_with({"low": -5}), "damaged.*lowest discernible value is -5"),
    "lowest too high": (text_with({"low": 2**52, "high": 2**62}), "damaged.*lowest discernible value is"),
    "broken off": (text_with(counts=b"\x02\x82"), "text 1: .*cut off"),
    "beyond highest": (text_with(counts=leb(-2048, 1)), "above its maximum"),
    "huge gap": (text_with(counts=leb(-(2**63))), "above its maximum"),
    "huge gaps": (text_with(counts=leb(*[-(2**62)] * 3)), "above its maximum"),
    "no checksum": (cut(GOOD, 4), "damaged.*compressed bytes are cut off"),
    "bomb": (text_with(counts=bytes(10**7)), "damaged.*too long after decompression"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_hdr_refuses(name):
    text, message = REFUSED[name]
    with pytest.raises(ValueError, match=message) as caught:
        from_hdr_v2(pa.array([None, text, GOOD]), Hdr())
    assert str(caught.value).startswith("text 1: ")


def test_hdr_refuses_other_states_and_columns():
    with pytest.raises(ValueError, match="digits=2"):
        to_hdr_v2(states_of(Hdr(digits=2), [1]), Hdr())
    with pytest.raises(TypeError, match="strings; got int64"):
        from_hdr_v2(pa.array([1]), Hdr())


# DDSketch

DDS_DATA = {
    "pareto": RNG.pareto(1.1, 2000) + 1,
    "normal": RNG.normal(0, 10, 2000),
    "negative": -RNG.lognormal(0, 3, 500),
    "mostly zero": np.where(RNG.uniform(size=500) < 0.9, 0.0, RNG.normal(size=500)),
    "far apart": np.array([1e-60, 1e60, -3.0]),
    "one": np.array([1 / 3]),
    "zeros": np.zeros(3),
    "nothing": np.zeros(0),
}


def their_dds(values, alpha):
    sketch = ddsketch.DDSketch(alpha)
    for value in values.tolist():
        sketch.add(value)
    return sketch


def message_of(**changes) -> bytes:
    """A message of accuracy 0.01, with some fields replaced."""
    mapping = {"gamma": Dds().mapping.gamma} | {
        k: changes.pop(k) for k in ("gamma", "indexOffset", "interpolation") if k in changes
    }
    fields = {"positiveValues": pb.Store(contiguousBinCounts=[2.0, 0.0, 1.0], contiguousBinIndexOffset=5)} | changes
    return pb.DDSketch(mapping=pb.IndexMapping(**mapping), **fields).SerializeToString()


def beside(states):
    return [states.field(name) for name in ("sum", "min", "max")]


@pytest.mark.parametrize("alpha", [0.1, 0.01, 0.001])
@pytest.mark.parametrize("name", DDS_DATA)
def test_we_read_their_dds(name, alpha):
    values, function = DDS_DATA[name], Dds(QUANTILES, alpha)
    sketch = their_dds(values, alpha)
    message = pa.array([DDSketchProto.to_proto(sketch).SerializeToString()])
    expected = states_of(function, values, kind=pa.float64())
    column = [pa.array([v if len(values) else None]) for v in (sketch.sum, sketch._min, sketch._max)]
    states = from_dds_proto(message, function, *column)
    for field in ("version", "relative_accuracy", "max_bins", "zero", "nan", "min", "max", "positive", "negative"):
        assert states.field(field).equals(expected.field(field)), field
    assert states.type == expected.type
    alone = from_dds_proto(message, function)
    result, exact = function.finish(alone)[0].as_py(), function.finish(expected)[0].as_py()
    if not len(values):
        assert result is exact is None
        return
    assert result["count"] == exact["count"]
    for q, given_value in zip(QUANTILES, result["quantiles"].values(), strict=True):
        assert given_value == pytest.approx(sketch.get_quantile_value(q), rel=1e-12)
    slack = 1e-12
    assert result["min"] == pytest.approx(values.min(), rel=alpha + slack)
    assert result["max"] == pytest.approx(values.max(), rel=alpha + slack)
    assert abs(result["sum"] - math.fsum(values)) <= (alpha + slack) * math.fsum(np.abs(values))


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.1, 0.01, 0.001])
@pytest.mark.parametrize("name", DDS_DATA)
def test_their_dds_reads_ours(name, alpha):
    values, function = DDS_DATA[name], Dds(QUANTILES, alpha)
    states = states_of(function, values, kind=pa.float64())
    message = to_dds_proto(states, function)[0].as_py()
    sketch = DDSketchProto.from_proto(pb.DDSketch.FromString(message))
    assert sketch.count == len(values)
    recorded = DDSketchProto.from_proto(DDSketchProto.to_proto(their_dds(values, alpha)))
    assert [sketch.get_quantile_value(q) for q in QUANTILES] == [recorded.get_quantile_value(q) for q in QUANTILES]
    for sign, store in (("positive", sketch._store), ("negative", sketch._negative_store)):
        assert buckets_of(states, sign) == {i + store.offset: int(n) for i, n in enumerate(store.bins) if n}


FLOATS = st.floats(-1e6, 1e6).filter(lambda x: x == 0 or abs(x) > 1e-6)


@pytest.mark.slow
@given(st.lists(st.lists(FLOATS, max_size=8), max_size=5), st.sampled_from(["upper", "lower"]))
def test_dds_round_trip(groups, keys):
    function = Dds((0.5,))
    states = states_of(function, *groups, kind=pa.float64())
    assert from_dds_proto(to_dds_proto(states, function, keys), function, *beside(states), keys=keys).equals(states)
    alone = from_dds_proto(to_dds_proto(states, function, keys), function, keys=keys)
    for name in ("positive", "negative", "zero"):
        assert alone.field(name).equals(states.field(name))
    again = from_dds_proto(to_dds_proto(alone, function), function)
    assert again.equals(alone)


def test_lower_keys_are_those_of_go_and_java():
    """Go and Java: index floor(log_γ v), value γ^index · (1 + α)."""
    function, values = Dds(QUANTILES), DDS_DATA["pareto"]
    gamma = (1 + 0.01) / (1 - 0.01)
    indices, counts = np.unique(np.floor(np.log(values) / math.log(gamma)).astype(int), return_counts=True)
    store = pb.Store(binCounts=dict(zip(indices.tolist(), counts.astype(float).tolist(), strict=True)))
    message = message_of(gamma=gamma, positiveValues=store)
    states = states_of(function, values)
    assert (
        from_dds_proto(pa.array([message]), function, keys="lower").field("positive").equals(states.field("positive"))
    )
    positive_values = pb.DDSketch.FromString(to_dds_proto(states, function, keys="lower")[0].as_py()).positiveValues
    listed = {
        i + positive_values.contiguousBinIndexOffset: n for i, n in enumerate(positive_values.contiguousBinCounts) if n
    }
    assert listed == dict(store.binCounts)
    with pytest.raises(ValueError, match=r"keys, the numbering of buckets, must be 'upper'.*'up'"):
        to_dds_proto(states, function, keys="up")


def test_sparse_counts_and_contiguous_ones_add_up():
    store = pb.Store(
        contiguousBinCounts=[2.0, 0.0, 1.0], contiguousBinIndexOffset=-1, binCounts={1: 4.0, -700: 1.0, 90: 0.0}
    )
    messages = pa.array(
        [message_of(), message_of(positiveValues=store, negativeValues=pb.Store(binCounts={3: 1.0}), zeroCount=7.0)]
    )
    states = from_dds_proto(messages, Dds())
    assert buckets_of(states, "positive", 0) == {5: 2, 7: 1}
    assert buckets_of(states, "positive", 1) == {-700: 1, -1: 2, 1: 5}
    assert buckets_of(states, "negative", 1) == {3: 1}
    assert states.field("zero").to_pylist() == [0, 7]
    assert Dds().finish(states)[1].as_py()["count"] == 16


def test_dds_merges_after_the_trip_as_before():
    function = Dds(QUANTILES)
    states = states_of(function, DDS_DATA["normal"], DDS_DATA["pareto"], DDS_DATA["mostly zero"])
    groups = Groups.of([0, 1, 0], 2)
    after = from_dds_proto(to_dds_proto(states, function), function, *beside(states))
    assert function.merge(after, groups).equals(function.merge(states, groups))


def test_dds_folds_to_max_bins():
    wide, narrow = Dds((0.5,)), Dds((0.5,), max_bins=7)
    values = np.concatenate([DDS_DATA["pareto"], DDS_DATA["negative"]])
    states, folded = states_of(wide, values), states_of(narrow, values)
    assert from_dds_proto(to_dds_proto(states, wide), narrow, *beside(states)).equals(folded)
    assert from_dds_proto(to_dds_proto(folded, narrow), narrow, *beside(folded)).equals(folded)
    negative = states_of(wide, DDS_DATA["negative"])
    nearest = from_dds_proto(to_dds_proto(negative, wide), narrow).field("max")[0].as_py()
    assert nearest == pytest.approx(DDS_DATA["negative"].max(), rel=0.01 + 1e-12)


def test_dds_nulls_empties_and_slices():
    function = Dds((0.5,))
    states = pa.concat_arrays([states_of(function, [1.0, 5.0], []), pa.nulls(1, states_of(function, [1.0]).type)])
    states = states.take(pa.array([2, 1, 0, 2, 0]))[1:]
    messages = to_dds_proto(states, function)
    assert messages.null_count == 1
    columns = {name: states.type.field(name).type for name in ("sum", "min", "max")}
    rows = states.to_pylist()
    sums, mins, maxs = (pa.array([row and row[name] for row in rows], kind) for name, kind in columns.items())
    assert from_dds_proto(messages, function, sums, mins, maxs).equals(states)
    chunks = pa.chunked_array([messages[:1], messages[1:]]).cast(pa.large_binary())
    assert from_dds_proto(chunks, function, sums, mins, maxs).equals(states)
    for none in (states[:0], function.zero(0, pa.float64())):
        assert len(from_dds_proto(to_dds_proto(none, function), function)) == 0
    assert from_dds_proto(pa.nulls(2), function).null_count == 2


def test_what_stays_behind():
    function = Dds((0.5,))
    states = states_of(function, [math.nan, math.inf, -math.inf, 2.0])
    again = from_dds_proto(to_dds_proto(states, function), function, states.field("sum"))
    finite = states_of(function, [2.0])
    for name in ("nan", "positive_infinity", "negative_infinity", "zero", "sum", "positive", "negative"):
        assert again.field(name).equals(finite.field(name)), name
    assert again.field("min")[0].as_py() == again.field("max")[0].as_py() == pytest.approx(2.0, rel=0.01)
    with pytest.raises(ValueError, match=r"maxs must be finite.*got inf in row 0"):
        from_dds_proto(to_dds_proto(states, function), function, maxs=states.field("max"))


def test_what_is_given_wins_and_the_rest_is_made():
    function = Dds((0.5,))
    messages = pa.array([None, message_of(), message_of(), message_of(positiveValues=pb.Store())])
    states = from_dds_proto(messages, function, pa.array([9, None, 4, None]), pa.array([9.0, 1.1, None, 5.0]))
    mapping = function.mapping
    five, seven = mapping.values(np.array([5, 7])).tolist()
    results = [r and (r["sum"], r["min"], r["max"]) for r in function.finish(states).to_pylist()]
    assert results == [None, (pytest.approx(2 * five + seven), 1.1, seven), (4.0, five, seven), None]
    assert states.field("min")[3].as_py() is None
    for sign, row in (("positive", "max"), ("negative", "min")):  # zeros at the other end
        message = message_of(
            **{"positiveValues": pb.Store(), f"{sign}Values": pb.Store(binCounts={7: 1.0})}, zeroCount=2.0
        )
        extremes = {"min": 0.0, "max": 0.0, row: seven if sign == "positive" else -seven}
        result = function.finish(from_dds_proto(pa.array([message]), function))[0].as_py()
        assert {name: result[name] for name in extremes} == extremes
    top = int(mapping.keys(np.array([1.7976931348623157e308]))[0])
    huge = from_dds_proto(pa.array([message_of(positiveValues=pb.Store(binCounts={top: 3.0}))]), function)
    assert math.isfinite(huge.field("max")[0].as_py())


def store(**fields):
    return {"positiveValues": pb.Store(**fields)}


DDS_REFUSED = {
    "corrupt": (b"\xff\xff\xff", "cannot be parsed as a DDSketch"),
    "nothing": (b"", "is not a DDSketch: its gamma is 0"),
    "gamma NaN": (message_of(gamma=math.nan), "is not a DDSketch"),
    "accuracy": (message_of(gamma=1.02 / 0.98), r"relative accuracy 0\.0\d+; this call expects 0\.01"),
    "accuracy, nearly": (
        message_of(gamma=Dds().mapping.gamma * (1 + 3e-12)),
        r"relative accuracy 0\.0100\d+; this call expects 0\.01",
    ),
    "offset": (message_of(indexOffset=0.5), r"index offset 0\.5"),
    "linear": (message_of(interpolation=1), "interpolation LINEAR"),
    "cubic": (message_of(interpolation=3), "interpolation CUBIC"),
    "unknown": (message_of(interpolation=9), "interpolation 9"),
    "fraction": (message_of(**store(contiguousBinCounts=[1.0, 0.5])), r"count of 0\.5; .*whole numbers"),
    "negative": (message_of(**store(contiguousBinCounts=[-1.0])), r"count of -1\.0"),
    "NaN": (message_of(**store(binCounts={1: math.nan})), "count of nan"),
    "huge": (message_of(**store(binCounts={1: 2.0**63})), r"count of 9\.2"),
    "zero count": (message_of(zeroCount=1.5), r"count of 1\.5"),
    "negative side": (message_of(negativeValues=pb.Store(contiguousBinCounts=[0.25])), r"count of 0\.25"),
    "key": (message_of(**store(binCounts={2**31 - 1: 1.0})), "bucket 2147483647, which lies outside"),
}


@pytest.mark.parametrize("name", DDS_REFUSED)
def test_dds_refuses(name):
    message, words = DDS_REFUSED[name]
    with pytest.raises(ValueError, match=words) as caught:
        from_dds_proto(pa.array([None, message_of(), message]), Dds())
    assert str(caught.value).startswith("message 2 ")


def test_dds_refuses_other_states_and_columns():
    states, messages = states_of(Dds(relative_accuracy=0.02), [1.0]), pa.array([message_of()])
    with pytest.raises(ValueError, match=r"relative_accuracy=0\.02"):
        to_dds_proto(states, Dds())
    with pytest.raises(TypeError, match="binary; got int64"):
        from_dds_proto(pa.array([1]), Dds())
    with pytest.raises(ValueError, match="sums must have one value for each message; got 2 values for 1 messages"):
        from_dds_proto(messages, Dds(), pa.array([1.0, 2.0]))
    with pytest.raises(TypeError, match="sums must be integers or floats, or exact sums; got string"):
        from_dds_proto(messages, Dds(), pa.array(["1"]))
    with pytest.raises(ValueError, match=r"sums must be finite.*got nan in row 0"):
        from_dds_proto(messages, Dds(), pa.array([math.nan]))
    with pytest.raises(ValueError, match=r"message 0 has the min 3\.0, which is above its max, 2\.0; correct them"):
        from_dds_proto(messages, Dds(), mins=pa.array([3.0]), maxs=pa.array([2.0]))


def test_dds_refuses_what_the_message_cannot_hold():
    def state(keys, counts, alpha=0.01):
        none = pa.array([0])
        zero = dict.fromkeys(("zero", "nan", "positive_infinity", "negative_infinity"), none)
        histogram = Histograms(np.array([len(keys)]), np.array(keys), np.array(counts)).to_arrow()
        empty = states_of(Dds(), [1.0])
        extremes = Dds(relative_accuracy=alpha).mapping.values(np.array(keys))
        remaining_fields = {
            "min": pa.array(extremes[:1]),
            "max": pa.array(extremes[-1:]),
            "sum": empty.field("sum"),
            "negative": empty.field("negative"),
        }
        return Dds(relative_accuracy=alpha).own_state.pack(zero | remaining_fields | {"positive": histogram}, 1)

    with pytest.raises(ValueError, match=r"up to 2.53; got the count 9007199254740993"):
        to_dds_proto(state([1], [2**53 + 1]), Dds())
    with pytest.raises(ValueError, match="this state has buckets from -100000000 to 100000000; use a coarser"):
        to_dds_proto(state([-(10**8), 10**8], [1, 1], 1e-6), Dds(relative_accuracy=1e-6))
